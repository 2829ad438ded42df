"""Weak references that are asked after the program let go: of what a break handed over, and of what was made inside."""

from __future__ import annotations

import collections
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events


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


def callback_of_what_dies_here(x: torch.Tensor) -> Any:
    told: list[int] = []
    thing: Any = Thing()
    reference = weakref.ref(thing, lambda dead: told.append(1))
    before = len(told)
    thing = None
    return before, len(told), reference() is None, float(x.sum())


def finalizer_of_what_dies_here(x: torch.Tensor) -> Any:
    told: list[int] = []
    thing: Any = Thing()
    weakref.finalize(thing, told.append, 3)
    before = len(told)
    thing = None
    return before, told, float(x.sum())


def finalizer_asked(x: torch.Tensor) -> Any:
    thing = Thing()
    final = weakref.finalize(thing, len, "abc")
    return final.alive, final(), final.alive, float(x.sum())


def callback_given_by_a_helper(x: torch.Tensor) -> Any:
    told: list[int] = []
    thing: Any = Thing()

    def refer(target: Any) -> Any:
        return weakref.ref(target, lambda dead: told.append(1))

    y = x * 2
    reference = refer(thing)
    y = y + 1
    thing = None
    return len(told), reference() is None, y.tolist()


@pytest.mark.parametrize("program", [callback_of_what_dies_here, finalizer_of_what_dies_here, finalizer_asked,
                                     callback_given_by_a_helper])
def test_callbacks_run_when_the_object_dies(program: Callable[[torch.Tensor], Any]) -> None:
    test_as_in_eager(program)


def test_a_callback_of_an_outside_object_runs_when_it_dies() -> None:
    told: list[str] = []
    kept: list[Any] = []

    def program(x: torch.Tensor, thing: Any) -> torch.Tensor:
        y = x * 2
        kept.append(weakref.ref(thing, lambda dead: told.append("dead")))
        return y + 1

    compiled = stator.compile(program, backend="eager")
    for run in (program, compiled, compiled):
        told.clear()
        thing = Thing()
        run(torch.ones(2), thing)
        assert told == []
        del thing
        assert told == ["dead"]
    assert captured_around(program)


def captured_around(program: Any) -> bool:
    with events.record() as log:
        stator.compile(program, backend="eager")(torch.ones(2), Thing())
    graphs = [event.graph for event in log if isinstance(event, events.CaptureFinished) and event.graph is not None]
    return len(graphs) == 1


def test_references_to_tensors_and_to_opaque_objects() -> None:
    lock = threading.Lock()  # torch 2.11 has no weak references to generators

    def program(x: torch.Tensor) -> Any:
        ours, theirs = weakref.ref(x), weakref.ref(lock)
        made = weakref.ref(x * 2)
        return ours, theirs, made() is None, ours() is x, theirs() is lock

    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        x = torch.ones(2)
        ours, theirs, *facts = compiled(x)
        assert ours() is x and theirs() is lock and facts == list(program(x)[2:])
