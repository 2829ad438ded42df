"""Probes: names that meet, or part, between two calls; what is written through one is read through the other."""

from __future__ import annotations

import random
import threading
import types
from typing import Any

from probing import Scene, probe, ramp
from scenery import box
from two_names import closures


def meeting(fn: Any, names: list[Any], others: list[Any], look: Any = None) -> Scene:
    """A scene whose names are replaced by other ones."""
    held = list(names)
    return Scene(fn, lambda: (ramp(), *held), lambda: held.__setitem__(slice(None), others),
                 look or (lambda: (names, others)))


@probe()
def dict_that_becomes_an_objects_own():
    first, second = box(n=1), box(n=1)

    def fn(x, o, d):
        d["n"] = 3
        return x * o.n

    return meeting(fn, [first, {"n": 1}], [second, vars(second)])


@probe()
def objects_that_share_a_dict_no_more():
    first, second, third = box(n=1), box(), box(n=1)
    second.__dict__ = first.__dict__

    def fn(x, o, p):
        o.n = 3
        return x * p.n

    return meeting(fn, [first, second], [first, third])


@probe()
def closures_that_share_a_cell_no_more():
    (put, get), (_, other) = closures(), closures()

    def fn(x, put, get):
        put(3)
        return x + get()

    return meeting(fn, [put, get], [put, other], lambda: (get(), other()))


@probe()
def closures_that_come_to_share_a_cell():
    (put, get), (_, other) = closures(), closures()

    def fn(x, put, get):
        put(3)
        return x + get()

    return meeting(fn, [put, other], [put, get], lambda: (get(), other()))


@probe()
def function_with_other_globals():
    def fn(x, get):
        return x * get()

    code = compile("def get():\n    return n\n", __file__, "exec").co_consts[0]
    return meeting(fn, [types.FunctionType(code, {"n": 2})], [types.FunctionType(code, {"n": 5})], lambda: None)


@probe()
def globals_that_come_as_a_dict():
    scope: dict[str, Any] = {"n": 1}
    get = types.FunctionType(compile("def get():\n    return n\n", __file__, "exec").co_consts[0], scope)

    def fn(x, d, get):
        d["n"] = 4
        return x * get()

    return meeting(fn, [{"n": 1}, get], [scope, get], lambda: scope["n"])


@probe()
def lock_that_is_taken_under_another_name():
    first, second = threading.Lock(), threading.Lock()

    def fn(x, a, b):
        with a:
            return x * (2 if b.locked() else 3)

    return meeting(fn, [first, second], [first, first], lambda: (first.locked(), second.locked()))


@probe()
def stream_that_is_seeded_under_another_name():
    first, second = random.Random(1), random.Random(2)

    def fn(x, a, b):
        a.seed(5)
        return x * b.random()

    return meeting(fn, [first, second], [first, first], lambda: (first.getstate(), second.getstate()))


@probe()
def flag_that_is_set_under_another_name():
    first, second, third = ramp(), ramp(), ramp()

    def fn(x, a, b):
        a.requires_grad_()
        return x * 2 if b.requires_grad else x * 3

    return meeting(fn, [first, second], [third, third], lambda: [t.requires_grad for t in (first, second, third)])


@probe("SB016 SB017")
def flag_that_is_set_on_the_base_of_a_view():
    first, second, third = ramp(), ramp(), ramp()
    view = third.view(-1)

    def fn(x, a, b):
        a.requires_grad_()
        return x * 2 if b.requires_grad else x * 3

    return meeting(fn, [first, second], [third, view], lambda: [t.requires_grad for t in (first, second, third, view)])


@probe()
def receiver_of_a_method_of_a_list():
    first, second = [1], [1]

    def fn(x, add):
        add(2)
        return x * len(add.__self__)

    return meeting(fn, [first.append], [second.append], lambda: (first, second))


@probe("SB006")
def class_changed_after_its_dict_was_taken():
    cls = type("Changed", (), {"n": 1})

    def fn(x):
        taken = cls.__dict__
        cls.n = 4
        return x * taken["n"]

    return Scene(fn, lambda: (ramp(),), lambda: setattr(cls, "n", 2), lambda: cls.n)
