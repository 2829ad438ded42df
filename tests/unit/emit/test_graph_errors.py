"""An error that only the graph meets: what the program did before it has happened, as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator import events


def test_effects_before_the_error_happen() -> None:
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        return x[index]

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    good = torch.tensor([0, 1])
    assert torch.equal(compiled(torch.arange(3.0), good, log), torch.tensor([0.0, 1.0]))
    with events.record() as seen, pytest.raises(IndexError, match="out of bounds|out of range"):
        compiled(torch.arange(3.0), torch.tensor([0, 9]), log)
    assert log == ["before", "before"]
    assert any(isinstance(event, events.EagerFallback) for event in seen)
    assert torch.equal(compiled(torch.arange(3.0), good, log), torch.tensor([0.0, 1.0]))
    assert log == ["before"] * 3
