"""A break while a frame still makes its cells: the call of it is the break, as there is no state yet to go on from."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.breaks import Break
from stator.interp.vm import VM


def counting_up(k: int) -> tuple[Any, Any]:
    def inner(x: torch.Tensor) -> list[torch.Tensor]:
        nonlocal k
        k += 1
        return [x * 3 + k for _ in range(2)]

    def outer(x: torch.Tensor) -> Any:
        y = x + 1
        return inner(y), y * 2

    return outer, inner


@pytest.mark.parametrize("which", [0, 1], ids=["called", "outermost"])
def test_a_break_at_the_cells_of_a_frame(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cells_of = VM.closure_of

    def refused(vm: Any, fn: types.FunctionType) -> Any:
        if fn.__name__ == "inner":
            raise Break("SB005", "cells of a kind that nobody can read")
        return cells_of(vm, fn)

    monkeypatch.setattr(VM, "closure_of", refused)
    program, reference = counting_up(2)[which], counting_up(2)[which]
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    with events.record() as log:
        for _ in range(3):
            torch.testing.assert_close(compiled(torch.ones(2)), reference(torch.ones(2)))
    assert sum(isinstance(event, events.GraphBreak) for event in log) == 1
    assert any(isinstance(event, events.EagerFallback) for event in log) == (which == 1)
