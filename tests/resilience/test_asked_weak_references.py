"""Weak references that are asked after the program let go: of what a break handed over, and of what was made inside."""

from __future__ import annotations

import collections
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


class Thing:
    pass


def handed_over_a_break(x: torch.Tensor) -> Any:
    held = functools.partial(len, [1])
    reference = weakref.ref(held)
    before = reference() is held
    stator.graph_break()
    held = None
    return before, reference() is None, float(x.sum())


def let_go_before_a_break(x: torch.Tensor) -> Any:
    held: Any = Thing()
    reference = weakref.ref(held)
    stator.graph_break()
    alive = reference() is not None
    held = None
    stator.graph_break()
    return alive, reference() is None


def proxy_of_a_deque(x: torch.Tensor) -> Any:
    """The break at `proxy` leaves the rest of the frame to CPython: nobody below it may hold what it drops."""
    held: Any = collections.deque("abc")
    proxy = weakref.proxy(held)
    same = str(proxy) == str(held)
    held = None
    try:
        str(proxy)
    except ReferenceError:
        return same, "dead"
    return same, "alive"


def proxy_over_breaks(x: torch.Tensor) -> Any:
    held: Any = Thing()
    proxy = weakref.proxy(held)
    stator.graph_break()
    held = None
    stator.graph_break()
    try:
        return proxy.missing
    except ReferenceError:
        return "dead"
    except AttributeError:
        return "alive"


def function_made_inside(x: torch.Tensor) -> Any:
    def made() -> None:
        pass

    reference = weakref.ref(made)
    before = reference() is made
    del made
    return before, reference() is None


def cache_made_inside(x: torch.Tensor) -> Any:
    @functools.lru_cache
    def made(y: int) -> int:
        return y

    reference = weakref.ref(made)
    del made
    return reference() is None


def module_made_inside(x: torch.Tensor) -> Any:
    made = torch.nn.Linear(2, 2)
    reference = weakref.ref(made)
    del made
    return reference() is None


PROGRAMS = [handed_over_a_break, let_go_before_a_break, proxy_of_a_deque, proxy_over_breaks, function_made_inside,
            cache_made_inside, module_made_inside]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Callable[[torch.Tensor], Any]) -> None:
    compiled = stator.compile(program, backend="eager")
    gc.collect()
    gc.disable()
    try:
        expected = program(torch.ones(2))
        assert [compiled(torch.ones(2)) for _ in range(3)] == [expected] * 3
    finally:
        gc.enable()


def test_held_by_a_variable_is_captured() -> None:
    def program(x: torch.Tensor, thing: Thing) -> Any:
        def made() -> int:
            return 1

        ours, theirs = weakref.ref(made), weakref.ref(thing)
        return x + ours()(), theirs() is thing, made

    thing = Thing()
    got = stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2), thing)
    assert torch.equal(got[0], torch.full((2,), 2.0)) and got[1]


@stator.disable
def referring(thing: Any) -> Any:
    return weakref.ref(thing)


def made_and_handed(x: Any) -> Any:
    thing = Thing()
    reference = referring(thing)
    return x + 1, reference() is None


def handed_after_a_break(x: Any) -> Any:
    thing, references = Thing(), []
    stator.graph_break()
    references.append(referring(thing))
    y = x * 2
    stator.graph_break()
    return y, references[0]() is None


def handed_by_a_callee(x: Any) -> Any:
    def inner() -> Any:
        thing = Thing()
        return referring(thing), x * 2

    reference, y = inner()
    return y, reference() is None


@pytest.mark.parametrize("program", [made_and_handed, handed_after_a_break, handed_by_a_callee])
def test_a_variable_keeps_what_code_that_is_not_captured_has_referred_to(program: Any) -> None:
    x = torch.ones(2)
    compiled = stator.compile(program, backend="eager")
    for _ in range(3):
        value, is_gone = compiled(x)
        expected, was_gone = program(x)
        assert torch.equal(value, expected) and is_gone == was_gone
