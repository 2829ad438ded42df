"""Probes: what several names share: memory of arrays, results that a cache keeps, one constant in two places."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import operator
import types

import numpy as np
import torch
from probing import Scene, probe, ramp
from scenery import one


@probe("SB003 SB005")
def view_of_an_array_that_becomes_a_tensor():
    def fn(x):
        made = np.zeros(4, dtype=np.float32)
        view = made[1:]
        tensor = torch.from_numpy(made)
        tensor += x
        return view, tensor

    return Scene(fn, one(ramp()))


@probe("SB003 SB005")
def array_whose_owner_is_held_becomes_a_tensor():
    def fn(x):
        owner = np.zeros((2, 2), dtype=np.float32)
        tensor = torch.from_numpy(owner.reshape(4))
        tensor += x
        return owner.tolist(), tensor

    return Scene(fn, one(ramp()))


@probe("SB005 SB006")
def arrays_that_come_to_share_memory():
    arrays = [np.zeros(4), np.zeros(4)]

    def fn(x):
        written, read = arrays
        written[0] = 5.0
        seen = float(read[0])
        written[0] = 0.0
        return x + seen

    return Scene(fn, one(ramp()), lambda: arrays.__setitem__(1, arrays[0][:]), lambda: arrays)


@probe()
def layout_of_an_array_that_is_not_read():
    arrays = [np.zeros((2, 3))]
    return Scene(lambda x: x * arrays[0].shape[0] + arrays[0].strides[1], one(ramp()),
                 lambda: arrays.__setitem__(0, np.zeros((3, 2), order="F")))


@probe("SB013")
def lru_cache_of_a_method_that_keeps_a_list():
    class Model:
        @functools.lru_cache  # noqa: B019
        def scales(self, n):
            return [n]

    model = Model()

    def fn(x):
        scales = model.scales(x.shape[0])
        scales.append(len(scales))
        return x * len(scales), scales

    return Scene(fn, one(ramp()), Model.scales.cache_clear, lambda: Model.scales.cache_info()[:2])


@probe("SB013 SB014")
def lru_cache_around_a_function_that_moves_an_iterator():
    moving, counting = iter(list(range(20))), itertools.count()

    @functools.lru_cache
    def doubled(n):
        next(moving)
        return n * 2

    @functools.lru_cache
    def tripled(n):
        next(counting)
        return n * 3

    return Scene(lambda x: x * doubled(x.shape[0]) + tripled(x.shape[0]), one(ramp()), doubled.cache_clear,
                 lambda: (operator.length_hint(moving), repr(counting)))


def told_to_a_handler(name, change, read, start):
    """The program changes something, tells a handler of the user, and changes it again."""
    def make():
        state = start()
        seen: list = []

        class Handler(logging.Handler):
            def emit(self, record):
                seen.append(read(state))

        logger = logging.Logger("told")
        logger.addHandler(Handler())

        def fn(x):
            change(state, x.shape[0])
            logger.warning("told")
            change(state, 9)
            return x * 2

        return Scene(fn, one(ramp()), look=lambda: (seen, read(state)))

    make.__name__ = f"told_after_{name}"
    probe("SB015 SB014")(make)


def cell_and_setter():
    value = 0

    def put(new):
        nonlocal value
        value = new

    return put, lambda: value


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0


told_to_a_handler("an_item_of_a_list", lambda s, n: s.__setitem__(0, n), list, lambda: [0])
told_to_a_handler("a_value_of_a_dict", lambda s, n: s.__setitem__("n", n), dict, lambda: {"n": 0})
told_to_a_handler("a_member_of_a_set", lambda s, n: (s.clear(), s.add(n)), sorted, lambda: {0})
told_to_a_handler("an_attribute", lambda s, n: setattr(s, "n", n), lambda s: s.n, lambda: types.SimpleNamespace(n=0))
told_to_a_handler("a_slot", lambda s, n: setattr(s, "n", n), lambda s: s.n, Slotted)
told_to_a_handler("a_cell", lambda s, n: s[0](n), lambda s: s[1](), cell_and_setter)
told_to_a_handler("bytes", lambda s, n: s.__setitem__(0, n), bytes, lambda: bytearray(1))
told_to_a_handler("a_tensor", lambda s, n: s.fill_(n), torch.Tensor.tolist, lambda: torch.zeros(1))


@probe()
def the_very_tuple_is_handed_on():
    slot = [("ab", 1.5)]
    kept: list = []

    def fn(x):
        kept.append(slot[0])
        return x * slot[0][1]

    return Scene(fn, one(ramp()), lambda: slot.__setitem__(0, ("ab", 1.5)), lambda: [item is slot[0] for item in kept])


@probe()
def one_text_in_two_places():
    text = "".join(["ab", "cd"])
    slot = [text, text]
    return Scene(lambda x: x * 2 if slot[0] is slot[1] else x * 3, one(ramp()),
                 lambda: slot.__setitem__(1, "".join(["abc", "d"])))


@probe()
def text_of_an_exception_from_outside():
    error = ValueError("ab")
    return Scene(lambda x: x * len(str(error)), one(ramp()), lambda: setattr(error, "args", ("abcd",)))


@probe()
def the_very_dict_of_an_object_is_handed_on():
    class Holder:
        n = 1

    held, kept = Holder(), []
    held.n = 2

    def fn(x):
        own = vars(held)
        own["n"] += 1
        kept.append(own)
        return x * held.n

    return Scene(fn, one(ramp()), lambda: setattr(held, "n", 7), lambda: ([own is vars(held) for own in kept], held.n))


@probe()
def namespaces_compared():
    space = types.SimpleNamespace(n=2)
    return Scene(lambda x: x * 2 if space == types.SimpleNamespace(n=2) else x * 3, one(ramp()),
                 lambda: setattr(space, "m", 1))


@probe()
def container_of_another_class():
    slot = [[2.0]]
    return Scene(lambda x: (x * slot[0][0], type(slot[0]).__name__), one(ramp()),
                 lambda: slot.__setitem__(0, collections.deque([2.0])))


@probe("SB019")
def attribute_of_an_object_with_a_finalizer():
    class Finalized:
        n = 2

        def __del__(self):
            pass

    held = Finalized()
    return Scene(lambda x: x * held.n, one(ramp()), lambda: setattr(held, "n", 3))


@probe()
def iterator_of_a_dict_at_its_end():
    table = {"a": 1, "b": 2}
    walker = iter(table)
    list(walker)
    ended = [iter({})]
    return Scene(lambda x: x * len(list(walker)) + len(list(ended[0])), one(ramp()),
                 lambda: ended.__setitem__(0, iter({"c": 3})), lambda: operator.length_hint(walker))


@probe()
def exhausted_iterator_of_a_list_that_grows():
    items = [1, 2]
    walker = iter(items)

    def fn(x):
        return x * sum(walker)

    return Scene(fn, one(ramp()), lambda: items.append(5), lambda: list(items))


@probe()
def zip_of_lists_is_read_by_c_code():
    slot = [zip([1, 2], [3, 4])]  # noqa: B905
    return Scene(lambda x: x * sum(a * b for a, b in list(slot[0])), one(ramp()),
                 lambda: slot.__setitem__(0, zip([1, 2], [3, 5])))  # noqa: B905
