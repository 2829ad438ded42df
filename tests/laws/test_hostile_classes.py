"""Classes with odd special methods, super() over breaks, imports after changes of sys.modules, beside eager."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stator
from stator import events

X = torch.arange(3.0)


def ending(call: Callable[[], Any]) -> Any:
    try:
        return str(call())
    except Exception as error:
        return type(error).__name__, str(error)


def booh(self):
    raise AttributeError("booh")


def hashes(x):
    answers = (2 ** 70, -1, True, "a", NotImplemented)
    return [ending(lambda made=type("Odd", (), {"__hash__": lambda self, a=a: a}): hash(made())) for a in answers], x + 1


def containers(x):
    return ending(lambda: 1 in type("Odd", (), {"__contains__": None})()), x + 1


def calls_a_builtin(x):
    return ending(lambda: type("Odd", (), {"__call__": len})()(1)), x + 1


def refuses_to_compare(x):
    odd = type("Odd", (), {"__eq__": property(booh), "__lt__": property(booh)})
    return odd() == odd(), ending(lambda: odd() < 1), x + 1


def initialises_by_a_property(x):
    return ending(lambda: type("Odd", (), {"__init__": property(booh)})()), x + 1


def chains_no_iterable(x):
    odd = type("Odd", (), {"__iter__": lambda self: 5})
    return ending(lambda: itertools.chain.from_iterable(odd())), x + 1


def reads_a_slot_of_another(x):
    slot = type("Odd", (), {"__slots__": ("s",)}).s
    return ending(lambda: slot.__get__(5)), x + 1


def takes_another_new(x):
    raising = type("Raising", (), {"__new__": lambda cls, *args: None})
    made = [type("One", (), {"__new__": list.__new__}), type("Two", (list,), {"__new__": object.__new__}),
            type("Three", (dict,), {"__new__": dict.__new__})]
    back = type("Back", (raising,), {"__new__": object.__new__, "__init__": lambda self, value: None})
    return [ending(lambda cls=cls: type(cls()).__name__) for cls in made], ending(lambda: back(3)), x + 1


def deletes_new(x):
    raising = type("Raising", (), {"__new__": lambda cls, *args: None})
    below = type("Below", (raising,), {"__init__": lambda self, value: None})
    del raising.__new__
    return ending(lambda: type(below(3)).__name__), x + 1


def slices_by_a_tensor(x):
    return list(itertools.islice([1, 2, 3], (x.sum() > 0).long())), x + 1


class Array(np.ndarray):
    @property
    def dtype(self):
        return super().dtype


class Kind(torch.Tensor):
    def total(self):
        parent = super()
        stator.graph_break()
        return parent.sum()


class Above:
    def add(self, x):
        return x + 1


class Below(Above):
    def add(self, x):
        parent, unbound = super(), super(Above)
        stator.graph_break()
        return parent.add(x), parent.__thisclass__.__name__, repr(unbound)


ARRAY, BELOW = np.arange(3).view(Array), Below()


def asks_the_parent_of_an_array(x):
    return ARRAY.dtype, x + 1


def keeps_a_parent(x):
    return BELOW.add(x), Below().add(x)


def keeps_the_parent_of_a_tensor(x):
    return x.as_subclass(Kind).total().as_subclass(torch.Tensor)


def imports_what_it_registers(x):
    module = types.ModuleType("of_this_test")
    module.value = 3
    sys.modules["of_this_test"] = module
    try:
        import of_this_test
        return of_this_test.value, x + 1
    finally:
        del sys.modules["of_this_test"]


PROGRAMS = (hashes, containers, calls_a_builtin, refuses_to_compare, initialises_by_a_property, chains_no_iterable,
            reads_a_slot_of_another, takes_another_new, deletes_new, slices_by_a_tensor, asks_the_parent_of_an_array,
            keeps_a_parent, keeps_the_parent_of_a_tensor, imports_what_it_registers)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_is_as_in_eager(program: Callable[..., Any], fullgraph: bool) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=fullgraph)
    for x in (X, X + 1):
        with events.record() as log:
            try:
                value = compiled(x)
            except stator.Unsupported:
                assert fullgraph
                continue
        assert str(value) == str(program(x))
        assert not [event.error for event in log if isinstance(event, events.InternalFailure)]
