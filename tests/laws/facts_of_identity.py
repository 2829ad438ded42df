"""Probes: which object it is.  What comes from outside goes back as the very object, and `is` and `id` are facts."""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import decimal
import functools
import io
import itertools
import operator
import random
import re
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from probing import Scene, probe, ramp
from scenery import box, one
from torch import nn

import stator


class Target:
    def method(self) -> int:
        return 1


ALIVE = Target()
# Text, numbers and bytes are missing: CPython itself makes them anew as it likes.
KINDS: dict[str, Callable[[], Any]] = {
    "method": lambda: Target().method, "partial": lambda: functools.partial(max, 1), "reference": lambda: weakref.ref(ALIVE),
    "slice": lambda: slice(1, [2]), "c_method": lambda: [].append, "bytearray": lambda: bytearray(b"a"),
    "memoryview": lambda: memoryview(bytearray(b"ab")), "array": lambda: array.array("i", [1]), "numpy": lambda: np.ones(3),
    "numpy_scalar": lambda: np.float32(3), "generator": lambda: (i for i in [1]), "iterator": lambda: iter([1, 2]),
    "cycle": lambda: itertools.cycle([1]), "lock": threading.Lock, "stream": lambda: io.StringIO("a"),
    "context_variable": lambda: contextvars.ContextVar("a"), "decimal": lambda: decimal.Decimal("1.5"),
    "datetime": lambda: datetime.datetime(2020, 1, 1), "exception": lambda: ValueError(1),
    "size": lambda: torch.Size([1, 2]), "tuple": lambda: tuple([1, 2]), "tuple_of_lists": lambda: ([], 2),
    "frozenset": lambda: frozenset([1, 2]), "cache": lambda: functools.lru_cache(abs), "property": lambda: property(abs),
    "staticmethod": lambda: staticmethod(len), "proxy": lambda: types.MappingProxyType({}), "module": lambda: types.ModuleType("q"),
    "namespace": lambda: types.SimpleNamespace(a=1), "deque": lambda: collections.deque([1]), "stream_of_chance": lambda: random.Random(1),
    "match": lambda: re.match("a", "a"), "local": threading.local, "getter": lambda: operator.attrgetter("a"),
    "keys": lambda: {}.keys(), "counter": lambda: collections.Counter("a"), "parameter": lambda: nn.Parameter(torch.ones(1)),
    "nn_module": nn.ReLU, "object": object, "zip": lambda: zip([1]), "map": lambda: map(abs, [1]), "function": lambda: lambda x: x,
    "class": lambda: type("Q", (), {}),
}


def _kept(make: Callable[[], Any]) -> Callable[[], Scene]:
    def scene() -> Scene:
        table, kept = {"v": make()}, []

        def fn(x):
            value = table["v"]
            kept.append(value)
            held = [value]
            return x * 2, value is table["v"], held[0] is value

        return Scene(fn, one(ramp()), lambda: table.update(v=make()), lambda: [value is table["v"] for value in kept])
    return scene


for _name, _make in KINDS.items():
    _scene = _kept(_make)
    _scene.__name__ = f"identity_of_a_{_name}"
    probe()(_scene)


def text(*parts: str) -> str:
    """A new object each time."""
    return "".join(parts)


def branch(first: Any, second: Any, other: Any) -> Scene:
    """`is` of two places, the second of which comes to hold something else."""
    table = {"a": first, "b": second}
    return Scene(lambda x: x * 2 if table["a"] is table["b"] else x * 3, one(ramp()), lambda: table.update(b=other))


@probe()
def one_text_that_becomes_two():
    word = text("ab", "cd")
    return branch(word, word, text("abc", "d"))


@probe()
def two_texts_that_become_one():
    word = text("ab", "cd")
    return branch(word, text("a", "bcd"), word)


@probe()
def one_tuple_that_becomes_two():
    pair = tuple([1, 2])
    return branch(pair, pair, tuple([1, 2]))


@probe()
def two_floats_that_become_one():
    number = float("1.5")
    return branch(number, float("1.5"), number)


@probe()
def text_that_is_the_literal():
    slot = ["abcd"]
    literal = "abcd"
    return Scene(lambda x: x * 2 if slot[0] is literal else x * 3, one(ramp()), lambda: slot.__setitem__(0, text("ab", "cd")))


@probe()
def text_that_is_not_the_literal():
    slot = [text("ab", "cd")]

    def fn(x):
        word = "abcd"
        return x * 2 if slot[0] is word else x * 3

    return Scene(fn, one(ramp()), lambda: slot.__setitem__(0, "abcd"))


@probe()
def address_of_a_text():
    slot, word = [text("ab", "cd")], text("ab", "cd")
    return Scene(lambda x: x * 2 if id(slot[0]) == id(word) else x * 3, one(ramp()), lambda: slot.__setitem__(0, word))


@probe()
def key_searched_before_it_is_read():
    table = {"a": 1}
    return Scene(lambda x: x * 2 if "a" in table else x * 3, one(ramp()), lambda: table.pop("a"))


@probe()
def bound_methods_compared():
    class Part:
        def run(self):
            return 2

    first, second = Part(), Part()
    thing = box(a=first.run, b=second.run)

    def change():
        thing.b = first.run

    return Scene(lambda x: x * 2 if thing.a == thing.b else x * 3, one(ramp()), change)


@probe()
def keywords_of_a_partial():
    call = functools.partial(lambda a, k: a * k, k=3)

    def fn(x):
        call.keywords["k"] += 1
        return call(x), call.keywords, call.args

    return Scene(fn, one(ramp()), lambda: call.keywords.update(k=9), lambda: call.keywords)


@probe()
def method_of_super_as_a_value():
    class Tens(list):
        def append(self, value):
            super().append(value * 10)

    items = Tens([1])
    return Scene(lambda x: (x * 2, super(Tens, items).append), one(ramp()), lambda: items.append(1), lambda: list(items))


@probe("SB002")
def method_of_super_at_a_break():
    class Tens(list):
        def append(self, value):
            super().append(7 if value > 0 else 8)

    items = Tens([1])

    def fn(x):
        items.append(x.sum())
        return x * len(items)

    return Scene(fn, one(ramp()), lambda: items.clear(), lambda: list(items))


@probe("SB009")
def id_of_what_is_made_inside():
    """It leaves with the object, whose address is another one then."""
    def fn(x):
        made, memo = {"x": x}, {}
        memo[id(made)] = made
        memo[id(memo)] = [made]
        y = x + 1
        number = id(y)
        return y, made, memo, number

    def told(x):
        y, made, memo, number = fn(x)
        stator.graph_break()
        return y, [key == id(made) for key in memo], [key == id(memo) for key in memo], number == id(y), memo[id(made)] is made

    return Scene(told, one(ramp()))
