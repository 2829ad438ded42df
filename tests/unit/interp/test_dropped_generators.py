"""A suspended generator that nobody holds any more runs its `finally` at once, as CPython's reference counts make it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import stator


def numbers(x: Any, log: list[Any], count: int) -> Any:
    try:
        for i in range(count):
            yield x + i
    finally:
        log.append("closed")


def of_a_temporary(x: Any, log: list[Any]) -> Any:
    value = next(numbers(x, log, 3))
    log.append("after")
    return value


def of_a_loop_left_early(x: Any, log: list[Any]) -> Any:
    for value in numbers(x, log, 3):
        break
    log.append("after")
    return value


def under_c_code(x: Any, log: list[Any]) -> Any:
    pairs = list(zip(numbers(x, log, 3), [1], strict=False))
    log.append("after")
    return pairs[0][0]


@pytest.mark.parametrize("program", [of_a_temporary, of_a_loop_left_early, under_c_code])
def test_closed_when_dropped(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for _ in range(2):
        expected_log: list[Any] = []
        log: list[Any] = []
        assert torch.equal(compiled(torch.ones(2), log), program(torch.ones(2), expected_log))
        assert log == expected_log == ["closed", "after"]


def test_a_trace_that_dropped_a_generator_lets_go_at_once() -> None:
    class Thing:
        pass

    thing = Thing()

    def program(x: torch.Tensor, unread: Thing) -> torch.Tensor:
        y = x + any(number > 1 for number in (1, 2, 3))
        stator.graph_break()
        return y

    reference = weakref.ref(thing)
    compiled = stator.compile(program, backend="eager")
    gc.collect()
    gc.disable()
    try:
        assert compiled(torch.zeros(2), thing).tolist() == [1, 1]
        del thing
        assert reference() is None
    finally:
        gc.enable()
