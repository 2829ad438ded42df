"""Probes: facts of the process, and objects whose state Python cannot see: clocks, streams, caches, iterators."""

from __future__ import annotations

import abc
import contextvars
import functools
import io
import itertools
import os
import random
import sys
import tempfile
import threading
import time
import weakref
from typing import Any

import numpy as np
import torch
from probing import Scene, probe, ramp


def one(x: torch.Tensor) -> Any:
    return lambda: (x,)


@probe("SB001 SB005 SB013")
def context_variable():
    variable = contextvars.ContextVar("scale", default=2)
    return Scene(lambda x: x * variable.get(), one(ramp()), lambda: variable.set(3), lambda: variable.get())


@probe("SB001 SB005 SB006 SB013")
def context_variable_set_inside():
    variable = contextvars.ContextVar("scale", default=2)

    def fn(x):
        token = variable.set(variable.get() + 1)
        y = x * variable.get()
        variable.reset(token)
        variable.set(variable.get() + 10)
        return y

    return Scene(fn, one(ramp()), lambda: variable.set(3), lambda: variable.get())


@probe("SB001 SB005 SB006 SB013")
def thread_local():
    local = threading.local()
    local.k = 2

    def fn(x):
        y = x * local.k
        local.k += 1
        return y

    return Scene(fn, one(ramp()), lambda: setattr(local, "k", 30), lambda: local.k)


@probe("SB001 SB005 SB013")
def thread_local_in_another_thread():
    local = threading.local()
    local.k = 2

    def fn(x):
        return x * getattr(local, "k", 9)

    return Scene(fn, one(ramp()), lambda: delattr(local, "k"))


class Target:
    k = 2


@probe()
def weak_reference_target():
    target = [Target()]
    reference = weakref.ref(target[0])
    return Scene(lambda x: x * 5 if reference() is None else x * reference().k, one(ramp()), target.clear)


@probe()
def weak_reference_target_changed():
    target = Target()
    reference = weakref.ref(target)
    return Scene(lambda x: x * reference().k, one(ramp()), lambda: setattr(target, "k", 3))


@probe()
def weak_value_dictionary():
    targets = [Target(), Target()]
    table = weakref.WeakValueDictionary(enumerate(targets))
    return Scene(lambda x: x * len(table), one(ramp()), targets.pop)


@probe()
def weak_set_grown_inside():
    known: Any = weakref.WeakSet()
    target = Target()

    def fn(x):
        known.add(target)
        return x * len(known)

    return Scene(fn, one(ramp()), lambda: known.clear(), lambda: len(known))


@probe()
def environment_variable():
    os.environ["STATOR_LAW_PROBE"] = "2"
    return Scene(lambda x: x * int(os.environ["STATOR_LAW_PROBE"]), one(ramp()),
                 lambda: os.environ.__setitem__("STATOR_LAW_PROBE", "3"),
                 undo=lambda: os.environ.pop("STATOR_LAW_PROBE", None))


@probe()
def environment_variable_that_appears():
    return Scene(lambda x: x * int(os.environ.get("STATOR_LAW_PROBE", "7")), one(ramp()),
                 lambda: os.environ.__setitem__("STATOR_LAW_PROBE", "3"),
                 undo=lambda: os.environ.pop("STATOR_LAW_PROBE", None))


@probe()
def environment_variable_through_getenv():
    return Scene(lambda x: x * int(os.getenv("STATOR_LAW_PROBE", "7")), one(ramp()),
                 lambda: os.environ.__setitem__("STATOR_LAW_PROBE", "3"),
                 undo=lambda: os.environ.pop("STATOR_LAW_PROBE", None))


@probe("SB001 SB005 SB006 SB013 SB015")
def environment_variable_written():
    def fn(x):
        os.environ["STATOR_LAW_PROBE"] = str(x.shape[0])
        return x * 2

    return Scene(fn, one(ramp()), lambda: os.environ.pop("STATOR_LAW_PROBE"),
                 lambda: os.environ.get("STATOR_LAW_PROBE"),
                 undo=lambda: os.environ.pop("STATOR_LAW_PROBE", None))


@probe("SB001 SB013")
def clock():
    times: list[float] = []

    def fn(x):
        times.append(time.perf_counter())
        return x * 2

    return Scene(fn, one(ramp()), look=lambda: (len(times), all(a < b for a, b in itertools.pairwise(times))))


@probe("SB001 SB013")
def wall_clock():
    times = [time.time_ns() - 1]

    def fn(x):
        moved = time.time_ns() > times[-1]
        times.append(time.time_ns())
        return x * 2, moved

    return Scene(fn, one(ramp()), look=lambda: len(times))


@probe("SB001 SB005 SB013")
def random_module():
    def args():
        random.seed(3)
        return (ramp(),)

    return Scene(lambda x: x * random.random() + random.randint(1, 9), args, look=lambda: random.getstate())


@probe("SB001 SB005 SB006 SB013")
def random_object():
    stream = random.Random(3)

    def fn(x):
        return x * stream.choice([1, 2, 3, 4])

    return Scene(fn, one(ramp()), look=lambda: stream.getstate())


@probe("SB001 SB005 SB013")
def numpy_random():
    def args():
        np.random.seed(3)
        return (ramp(),)

    return Scene(lambda x: x * float(np.random.rand()), args, look=lambda: np.random.get_state()[2])


@probe("SB001 SB005 SB006 SB013")
def numpy_generator():
    stream = np.random.default_rng(3)
    return Scene(lambda x: x * float(stream.random()), one(ramp()), look=lambda: str(stream.bit_generator.state))


@probe()
def identity_steers_a_branch():
    thing, other = Target(), Target()
    slot = [thing]
    return Scene(lambda x: x * 2 if id(slot[0]) == id(thing) else x * 3, one(ramp()), lambda: slot.__setitem__(0, other))


@probe()
def hash_steers_a_branch():
    thing, other = Target(), Target()
    slot = [thing]
    return Scene(lambda x: x * 2 if hash(slot[0]) == hash(thing) else x * 3, one(ramp()),
                 lambda: slot.__setitem__(0, other))


@probe()
def identity_in_a_result():
    slot = [Target(), Target()]
    told: list[int] = []

    def fn(x):
        told.append(id(slot[0]))
        return x * 2

    return Scene(fn, one(ramp()), slot.reverse, lambda: [told[-1:] == [id(slot[0])], len(told)])


class Point:
    """Equal by value, in Python."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Point) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


@probe()
def dict_keyed_by_objects():
    first = Point(1)
    table = {first: 2, Point(2): 5}
    return Scene(lambda x: x * table[Point(1)], one(ramp()), lambda: table.__setitem__(Point(1), 3))


@probe()
def key_object_changed():
    key = Point(1)
    table = {key: 2}
    asked = [Point(1)]
    return Scene(lambda x: x * table.get(asked[0], 7), one(ramp()), lambda: setattr(asked[0], "n", 4))


@probe()
def set_of_objects():
    points = {Point(1), Point(2)}
    return Scene(lambda x: x * (2 if Point(3) in points else 3) + len(points), one(ramp()), lambda: points.add(Point(3)))


@probe()
def set_of_objects_grown_inside():
    points = {Point(1)}

    def fn(x):
        points.add(Point(1))
        points.add(Point(x.shape[0]))
        return x * len(points)

    return Scene(fn, one(ramp()), points.clear, lambda: sorted(p.n for p in points))


@probe("SB013")
def set_in_hash_order():
    words = {"alpha", "beta", "gamma", "delta"}
    return Scene(lambda x: (x * 2, list(words), [w for w in words]), one(ramp()), lambda: words.add("epsilon"))


@probe()
def set_of_ints_in_table_order():
    # Equal sets with different histories iterate in different orders: 8 and 0 share a slot of the table.
    sets = [{8, 0}, {0, 8}]
    slot = [sets[0]]
    return Scene(lambda x: (x * 2, list(slot[0])), one(ramp()), lambda: slot.__setitem__(0, sets[1]))


@probe()
def set_of_identity_hashed_objects():
    things = {Target(), Target(), Target()}
    order = list(things)
    return Scene(lambda x: (x * 2, [order.index(t) for t in things]), one(ramp()))


@probe()
def cached_property():
    class Model:
        @functools.cached_property
        def k(self):
            return self.n * 2

    model = Model()
    model.n = 2
    return Scene(lambda x: x * model.k, one(ramp()), lambda: (vars(model).pop("k", None), setattr(model, "n", 5)),
                 lambda: vars(model))


@probe()
def outside_iterator():
    items = iter([1, 2, 3, 4, 5, 6])
    return Scene(lambda x: x * next(items), one(ramp()), lambda: next(items), lambda: items.__length_hint__())


@probe()
def outside_iterator_looped():
    holder = {"it": iter([1, 2, 3])}
    return Scene(lambda x: [x * k for k in holder["it"]], one(ramp()), lambda: holder.update(it=iter([5])),
                 lambda: holder["it"].__length_hint__())


@probe()
def outside_counter():
    counter = itertools.count()
    return Scene(lambda x: x * next(counter), one(ramp()), lambda: next(counter), lambda: repr(counter))


@probe("SB014 SB005 SB001")
def outside_generator():
    def numbers():
        for n in range(20):
            seen.append(n)
            yield n

    seen: list[int] = []
    stream = numbers()
    return Scene(lambda x: x * next(stream), one(ramp()), lambda: next(stream), lambda: list(seen))


@probe("SB014 SB005 SB001")
def outside_generator_unpacked():
    def numbers():
        yield 1
        yield 2

    streams = [numbers(), numbers(), numbers(), numbers()]
    return Scene(lambda x: (x, *streams.pop()), one(ramp()), look=lambda: len(streams))


@probe()
def outside_zip_of_one_iterator_twice():
    pairs = zip(*[iter(list(range(30)))] * 2)
    return Scene(lambda x: (x * 2, next(pairs)), one(ramp()), lambda: next(pairs))


@probe()
def outside_zip_beside_its_iterator():
    numbers = iter(list(range(40)))
    pairs = zip(numbers, range(40))
    return Scene(lambda x: (x * 2, next(pairs), next(numbers), next(pairs)), one(ramp()), lambda: next(numbers))


@probe("SB014")
def outside_enumerate_beside_its_iterator():
    numbers = iter(list(range(40)))
    numbered = enumerate(numbers)
    return Scene(lambda x: (x * 2, next(numbered), next(numbers), next(numbered)), one(ramp()), lambda: next(numbers))


@probe("SB014")
def outside_iterator_over_a_list_that_changes():
    items = list(range(5))
    stream = iter(items)

    def fn(x):
        first = next(stream)
        items.insert(0, 7)
        return x * 2, first, next(stream)

    return Scene(fn, one(ramp()), lambda: items.extend(range(9)), lambda: (items, stream.__length_hint__()))


@probe("SB014")
def outside_iterator_over_a_list_that_comes_to_change():
    items, slot = list(range(9)), [[1]]
    stream = iter(items)

    def fn(x, other):
        other.insert(0, 7)
        return x * 2, next(stream)

    return Scene(fn, lambda: (ramp(), slot[0]), lambda: slot.__setitem__(0, items), lambda: items)


@probe("SB014")
def outside_chain_over_a_generator():
    numbers = itertools.chain((n for n in range(9)), [1, 2, 3])
    return Scene(lambda x: (x * 2, next(numbers)), one(ramp()), lambda: next(numbers))


@probe()
def outside_map_with_an_effect():
    log: list[int] = []

    def noted(n):
        log.append(n)
        return n

    numbers = map(noted, range(40))
    return Scene(lambda x: (x * 2, next(numbers)), one(ramp()), lambda: next(numbers), lambda: list(log))


@probe()
def outside_zip_and_map():
    pairs = zip([1, 2, 3, 4], [5, 6, 7, 8])
    doubled = map(lambda n: n * 2, itertools.count())
    return Scene(lambda x: x * next(pairs)[1] + next(doubled), one(ramp()))


@probe()
def outside_iterator_given_to_list():
    streams = [iter("ab"), iter("cd"), iter("ef"), iter("gh")]
    return Scene(lambda x: (x * 2, list(streams[0]), "".join(streams[1]), tuple(streams[2])), one(ramp()))


@probe("SB001 SB005 SB006 SB014 SB015")
def file_object():
    file = io.StringIO("1\n2\n3\n4\n5\n")
    return Scene(lambda x: x * int(file.readline()), one(ramp()), lambda: file.seek(0), lambda: file.tell())


@probe()
def file_object_written():
    file = io.StringIO()

    def fn(x):
        print("shape", x.shape[0], file=file)
        return x * file.write("more")

    return Scene(fn, one(ramp()), lambda: file.write("changed"), lambda: file.getvalue())


@probe()
def real_files_written():
    streams: list[Any] = [tempfile.TemporaryFile("w"), io.BytesIO()]

    def fn(x):
        print("shape", x.shape[0], file=streams[0], flush=True)
        return x * streams[0].write("more") * streams[1].write(b"ab")

    return Scene(fn, one(ramp()), lambda: streams.__setitem__(1, io.BytesIO(b"x")),
                 lambda: (os.path.getsize(streams[0].fileno()), streams[1].getvalue()), undo=streams[0].close)


@probe("SB001 SB005 SB006")
def closed_file_written():
    file = io.StringIO()

    def fn(x):
        try:
            file.write("text")
        except ValueError as error:
            return x * 2, str(error)
        return x * 3

    return Scene(fn, one(ramp()), file.close)


@probe("SB001 SB005 SB006 SB014 SB015")
def file_object_written_and_read():
    file = io.StringIO()

    def fn(x):
        file.write("ab")
        size = len(file.getvalue())
        file.write("cd")
        return x * size

    return Scene(fn, one(ramp()), lambda: file.write("changed"), lambda: file.getvalue())


@probe()
def abstract_class_registered():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    square = Square()
    return Scene(lambda x: x * 2 if isinstance(square, Shape) else x * 3, one(ramp()), lambda: Shape.register(Square))


@probe()
def recursion_limit_asked():
    limit = sys.getrecursionlimit()
    return Scene(lambda x: x * (2 if sys.getrecursionlimit() == limit else 3), one(ramp()),
                 lambda: sys.setrecursionlimit(limit + 50), undo=lambda: sys.setrecursionlimit(limit))


@probe()
def modules_asked():
    return Scene(lambda x: x * 2 if "stator_law_probe" in sys.modules else x * 3, one(ramp()),
                 lambda: sys.modules.__setitem__("stator_law_probe", torch),
                 undo=lambda: sys.modules.pop("stator_law_probe", None))


@probe("SB001 SB005 SB013 SB018")
def thread_asked():
    main = threading.get_ident()
    return Scene(lambda x: x * (2 if threading.get_ident() == main else 3), one(ramp()))


@probe()
def bytearray_changed():
    data = bytearray(b"abc")
    return Scene(lambda x: x * data[0], one(ramp()), lambda: data.__setitem__(0, 5), lambda: bytes(data))


@probe()
def bytearray_written():
    data = bytearray(b"abc")

    def fn(x):
        data.append(100)
        return x * len(data)

    return Scene(fn, one(ramp()), lambda: data.clear(), lambda: bytes(data))
