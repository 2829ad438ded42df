"""Probes: facts of the process, and objects whose state Python cannot see: clocks, contexts, identity, hash order."""

from __future__ import annotations

import abc
import contextvars
import functools
import inspect
import itertools
import os
import sys
import threading
import time
import weakref
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import one


@probe()
def context_variable():
    variable = contextvars.ContextVar("scale", default=2)
    return Scene(lambda x: x * variable.get(), one(ramp()), lambda: variable.set(3), lambda: variable.get())


@probe()
def context_variable_set_inside():
    variable = contextvars.ContextVar("scale", default=2)

    def fn(x):
        token = variable.set(variable.get() + 1)
        y = x * variable.get()
        variable.reset(token)
        variable.set(variable.get() + 10)
        return y

    return Scene(fn, one(ramp()), lambda: variable.set(3), lambda: variable.get())


@probe()
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


@probe("SB005 SB008")
def frames_asked_for_by_a_callee():
    def who():
        return sys._getframe(1).f_code.co_name

    def asks(x):
        here = inspect.currentframe()
        return x + 1, who(), here.f_code.co_name, sorted(here.f_locals)[-1], inspect.stack()[0].function

    return Scene(lambda x: asks(x * 2), one(ramp()))


@probe("SB008")
def frames_asked_for_by_the_root():
    def asks(x):
        return x + 1, sys._getframe(1).f_code.co_name

    return Scene(asks, one(ramp()))
