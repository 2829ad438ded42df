"""A capture that fails by a bug of Stator's: said once, and every call is the eager one; under `strict` it is raised."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.capture import stages
from stator.errors import InternalError


def program(x: torch.Tensor, log: list[int]) -> torch.Tensor:
    log.append(len(log))
    return x + len(log)


def failing(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("a table is empty")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "emit_residual", failing)


def test_it_is_said_once_and_the_calls_are_eager(broken: None) -> None:
    compiled, log, x = stator.compile(program, backend="eager"), [], torch.ones(2)
    with events.record() as told, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        values = [compiled(x, log).tolist() for _ in range(3)]
    assert values == [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]] and log == [0, 1, 2]
    failures = [event for event in told if isinstance(event, events.InternalFailure)]
    assert [type(event.error) for event in failures] == [ValueError] * 3
    texts = [str(each.message) for each in said if each.category is RuntimeWarning]
    assert len(texts) == 1 and "a table is empty" in texts[0] and "program" in texts[0]


def test_strict_raises_it(broken: None) -> None:
    compiled, log = stator.compile(program, backend="eager", options={"strict": True}), []
    with pytest.raises(InternalError, match="capturing program failed: ValueError: a table is empty"):
        compiled(torch.ones(2), log)
    assert log == []


def test_what_failed_once_is_captured_when_it_no_longer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, log, x = stator.compile(program, backend="eager"), [], torch.ones(2)
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="a table is empty"):
        patch.setattr(stages, "emit_residual", failing)
        compiled(x, log)
    with events.record() as told:
        assert compiled(x, log).tolist() == [3.0, 3.0]
    assert any(isinstance(event, events.CaptureFinished) for event in told)
