"""Probes: objects that the program makes and leaves behind: wrappers, aliases, modules, iterators, tokens."""

from __future__ import annotations

import math
import operator
import sys
import typing

from probing import Scene, probe, ramp
from scenery import one

import stator


def left_behind(make, ask):
    """A scene whose program appends what it makes to a list; `ask` says what can be seen of it."""
    kept: list = []

    def fn(x):
        kept.append(make(x.shape[0]))
        return x * 2

    return Scene(fn, one(ramp()), look=lambda: [ask(item) for item in kept])


def asked(value):
    return value


@probe()
def property_made_inside():
    return left_behind(lambda n: property(lambda self: self + n, None, asked, "its text"),
                       lambda p: (type(p), p.fget(3), p.fset, p.fdel is asked, p.__doc__))


@probe()
def wrappers_made_inside():
    return left_behind(lambda n: (classmethod(lambda cls: n), staticmethod(lambda: n + 1)),
                       lambda pair: (pair[0].__func__(None), pair[1].__func__(), *map(type, pair)))


@probe()
def aliases_made_inside():
    return left_behind(lambda n: (list[int], dict[str, list[int]], typing.Optional[int], tuple[int, ...]), repr)  # noqa: UP045


@probe()
def modules_handed_on():
    return left_behind(lambda n: [math, operator], lambda pair: (pair[0] is math, pair[1] is operator))


@probe()
def iterator_of_a_set_made_inside():
    return left_behind(lambda n: iter({n, "a"}), operator.length_hint)


@probe()
def iterators_of_a_dict_made_inside():
    def begun(n):
        walker = iter({"a": n, "b": 2}.items())
        next(walker)
        ended = iter({"a": 1}.values())
        list(ended)
        return walker, ended

    return left_behind(begun, lambda pair: tuple(map(operator.length_hint, pair)))


@stator.disable
def what_is_handled():
    return repr(sys.exc_info()[1])


@probe("SB010 SB001 SB006 SB008 SB012")
def exception_that_a_generators_caller_handles():
    def names():
        yield what_is_handled()
        try:
            raise KeyError("b")
        except KeyError:
            yield what_is_handled()
        yield what_is_handled()

    def fn(x):
        try:
            raise ValueError("a")
        except ValueError:
            return [*names()], x * 2

    return Scene(fn, one(ramp()))
