"""Callables of one class that do different things, and lengths asked of the method: each is a fact of the call.

A program is called with one object, with another of the same class, and with the first again, as an argument, as an
attribute and in a list; each time it must do what the object at hand does.
"""

from __future__ import annotations

import array
import collections
import contextvars
import datetime
import decimal
import fractions
import functools
import operator
import re
import string
import struct
import types
import weakref
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend

import stator

X = torch.full((2,), 0.5)


def plus(x):
    return x + 1


def times(x):
    return x * 10


class Scale:
    def __init__(self, k):
        self.k = k

    def apply(self, x):
        return x * self.k


class Longer(Scale):
    pass


class Plus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return grad


class Times(Plus):
    @staticmethod
    def forward(ctx, x):
        return x * 10


class CountsTenfold(list):
    def __len__(self):
        return super().__len__() * 10


class Sized(dict):
    def size(self):
        return dict.__len__(self)


TWO, THREE = Scale(2), Scale(3)


def call(f, x):
    return f(x)


# one object, another, what is done with it
OBJECTS: dict[str, tuple[Any, Any, Any]] = {
    "partial": (functools.partial(torch.mul, other=2), functools.partial(torch.mul, other=3), call),
    "methodcaller": (operator.methodcaller("add", 1), operator.methodcaller("mul", 5), call),
    "methodcaller with a tensor": (operator.methodcaller("add", torch.ones(2)), operator.methodcaller("add", X), call),
    "methodcaller with a keyword": (operator.methodcaller("sub", 1, alpha=2), operator.methodcaller("sub", 1, alpha=3), call),
    "methodcaller of a text": (operator.methodcaller("upper"), operator.methodcaller("lower"), lambda f, x: (f("aB"), x + 1)),
    "attrgetter": (operator.attrgetter("real"), operator.attrgetter("imag"), lambda f, x: (f(3), x + 1)),
    "itemgetter": (operator.itemgetter(0), operator.itemgetter(1), lambda f, x: (f((3, 4)), x + 1)),
    "two items": (operator.itemgetter(0, 1), operator.itemgetter(1, 0), lambda f, x: (f((3, 4)), x + 1)),
    "key of a sort": (operator.itemgetter(0), operator.itemgetter(1), lambda f, x: (sorted([(1, 5), (2, 3)], key=f), x + 1)),
    "mapped": (operator.methodcaller("add", 1), operator.methodcaller("add", 2), lambda f, x: list(map(f, [x]))[0]),
    "method": (TWO.apply, THREE.apply, call),
    "weak method": (weakref.WeakMethod(TWO.apply), weakref.WeakMethod(THREE.apply), lambda f, x: f()(x)),
    "cached": (functools.lru_cache(plus), functools.lru_cache(times), call),
    "dispatching": (functools.singledispatch(plus), functools.singledispatch(times), call),
    "scripted": (torch.jit.script(plus), torch.jit.script(times), call),
    "graph module": (torch.fx.symbolic_trace(plus), torch.fx.symbolic_trace(times), call),
    "compiled": (stator.compile(plus, backend="eager"), stator.compile(times, backend="eager"), call),
    "compiled method": (stator.compile(TWO.apply, backend="eager"), stator.compile(THREE.apply, backend="eager"), call),
    "compiled module": (stator.compile(torch.nn.ReLU(), backend="eager"), stator.compile(torch.nn.Tanh(), backend="eager"), call),
    "operation": (torch.sin, torch.cos, call),
    "overload": (torch.ops.aten.sin.default, torch.ops.aten.cos.default, call),
    "method of a tensor": (torch.full((2,), 2.0).mul, torch.full((2,), 3.0).mul, call),
    "apply": (Plus.apply, Times.apply, call),
    "vmap": (torch.vmap(plus), torch.vmap(times), call),
    "grad": (torch.func.grad(lambda x: x.sum()), torch.func.grad(lambda x: (x * x).sum()), call),
    "disabled": (stator.disable(plus), stator.disable(times), call),
    "class": (Scale, Longer, lambda f, x: x + len(f.__name__) + f(3).k),
    "method of a pattern": (re.compile("a").sub, re.compile("b").sub, lambda f, x: (f("z", "abab"), x + 1)),
    "method of a match": (re.match(".", "a").group, re.match("..", "bb").group, lambda f, x: (f(0), x + 1)),
    "method of a text": ("a{}".format, "b{}".format, lambda f, x: (f(3), x + 1)),
    "method of a number": ((3).__add__, (300).__add__, lambda f, x: x + f(1)),
    "method of a tuple": ((1, 2).index, (2, 1).index, lambda f, x: x + f(2)),
    "method of a range": (range(3).index, range(1, 4).index, lambda f, x: x + f(2)),
    "method of a list": ([1].__len__, [1, 2].__len__, lambda f, x: x + f()),
    "method of a dict": ({1: 2}.get, {1: 3}.get, lambda f, x: x + f(1)),
    "length of a dict": ({1: 2}.__len__, {}.__len__, lambda f, x: x + f()),
    "length of a deque": (collections.deque([1]).__len__, collections.deque().__len__, lambda f, x: x + f()),
    "method of a proxy": (types.MappingProxyType({1: 2}).get, types.MappingProxyType({1: 3}).get, lambda f, x: x + f(1)),
    "method of a date": (datetime.date(2020, 1, 1).isoformat, datetime.date(2021, 1, 1).isoformat, lambda f, x: (f(), x + 1)),
    "method of a decimal": (decimal.Decimal(1).__add__, decimal.Decimal(2).__add__, lambda f, x: (f(1), x + 1)),
    "method of a struct": (struct.Struct("<i").pack, struct.Struct("<q").pack, lambda f, x: (f(3), x + 1)),
    "method of a fraction": (fractions.Fraction(1, 2).limit_denominator, fractions.Fraction(1, 3).limit_denominator,
                             lambda f, x: (f(5), x + 1)),
    "method of a template": (string.Template("a$x").substitute, string.Template("b$x").substitute,
                             lambda f, x: (f(x=1), x + 1)),
    "method of a context variable": (contextvars.ContextVar("a", default=1).get, contextvars.ContextVar("b", default=2).get,
                                     lambda f, x: x + f()),
    "method of an array": (array.array("i", [1]).tolist, array.array("i", [2]).tolist, lambda f, x: (f(), x + 1)),
    # ---- lengths, asked of the method
    "own length of a list": ([1], [1, 2], lambda v, x: x + v.__len__()),
    "length of a list by its class": ([1], [1, 2], lambda v, x: x + list.__len__(v)),
    "length by super": (CountsTenfold([1]), CountsTenfold([1, 2]), lambda v, x: x + len(v)),
    "length of a dict by its class": (Sized(a=1), Sized(), lambda v, x: x + v.size()),
    "own length of a dict": ({1: 1}, {}, lambda v, x: x + v.__len__()),
    "own length of an ordered dict": (collections.OrderedDict(a=1), collections.OrderedDict(), lambda v, x: x + v.__len__()),
    "own length of a deque": (collections.deque([1]), collections.deque(), lambda v, x: x + v.__len__()),
    "own length of keys": ({1: 1}, {1: 1, 2: 2}, lambda v, x: x + v.keys().__len__()),
    "lengths mapped": ([[1]], [[1, 2]], lambda v, x: x + sum(map(list.__len__, v))),
    "length as a key": ([[1, 2], [1]], [[1], [1, 2]], lambda v, x: x + len(sorted(v, key=list.__len__)[0]) * len(v[0])),
    "length hint": ([1], [1, 2], lambda v, x: x + operator.length_hint(v)),
    "length of a user list": (collections.UserList([1]), collections.UserList([1, 2]), lambda v, x: x + v.__len__()),
}


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else type(one) is type(other) and one == other


class Holder:
    def __init__(self, held):
        self.held = held


@pytest.mark.parametrize("name", OBJECTS)
def test_each_object_does_its_own(name: str) -> None:
    one, other, use = OBJECTS[name]
    for wrap, take in ((lambda v: v, lambda v: v), (Holder, lambda v: v.held), (lambda v: [v], lambda v: v[0])):
        def program(value, x, take=take):
            return use(take(value), x)

        compiled = stator.compile(program, backend="eager")
        for value in (wrap(one), wrap(other), wrap(one), wrap(other)):
            assert alike(compiled(value, X), program(value, X))


def test_a_length_that_changes_is_a_symbol_as_with_len() -> None:
    compiled = stator.compile(lambda v, x: x + v.__len__(), backend="eager", dynamic=True)
    assert [compiled(list(range(n)), X)[0].item() for n in range(2, 7)] == [n + 0.5 for n in range(2, 7)]


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "bound of a deque": (collections.deque([1], maxlen=3), collections.deque([1], maxlen=5), lambda v, x: x * v.maxlen),
    "a full deque": (collections.deque([1, 2], maxlen=2), collections.deque([1, 2], maxlen=3),
                     lambda v, x: (v.append(9), list(v), v.pop(), x + 1)[1:3]),
    "backend": (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, lambda v, x: (v == SDPBackend.MATH, x + 1)),
    "backend, not": (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, lambda v, x: (v != SDPBackend.MATH, x + 1)),
    "backend in a list": (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, lambda v, x: (v in [SDPBackend.MATH], x + 1)),
    "backend as a key": (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, lambda v, x: ({SDPBackend.MATH: 1}.get(v), x + 1)),
    "name of a backend": (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, lambda v, x: (v.name, str(v), hash(v), x + 1)),
    "text of a namespace": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2), lambda v, x: (repr(v), x + 1)),
    "text of a namespace in a list": (types.SimpleNamespace(a=[1]), types.SimpleNamespace(a=[2]),
                                      lambda v, x: (f"{[v]}", x + v.a[0])),
    "texts of namespaces": (types.SimpleNamespace(a=types.SimpleNamespace(b=1)), types.SimpleNamespace(a=types.SimpleNamespace(b=2)),
                            lambda v, x: ("%s" % v, x + v.a.b)),
    "text of a partial": (functools.partial(max, 1, key=[1]), functools.partial(max, 2, key=[2]), lambda v, x: (f"{v}", x + 1)),
}
OBJECTS |= VALUES


@pytest.mark.parametrize("name", VALUES)
def test_each_value_is_its_own(name: str) -> None:
    test_each_object_does_its_own(name)
    one, other, use = VALUES[name]
    compiled = stator.compile(use, backend="eager")
    for value in (one, other, one):
        assert alike(compiled(value, X), use(value, X))
