"""Every breaking instruction in every construct: the compiled program equals eager, call after call."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.breaks.matrix import programs
from tests.breaks.natively import natively

CASES = dict(programs())
DRIVEN_BY_C = ("callback-",)


def load(name: str, source: str) -> Any:
    filename = f"<break matrix {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["program"]


def outcome(program: Any, x: torch.Tensor) -> Any:
    log: list[Any] = []
    try:
        value = program(x, log)
    except Exception as error:
        return type(error), str(error), log
    return portrait(value), portrait(log), torch.is_grad_enabled()


def portrait(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist(), value.dtype, value.requires_grad)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [portrait(item) for item in value])
    return value


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    program, again = load(name, CASES[name]), load(name, CASES[name])
    compiled = stator.compile(program, backend="eager", options={"strict": True}, recompile_limit=64)
    inputs = [torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, -5.0])]
    with events.record() as seen:
        for x in inputs:
            assert outcome(compiled, x) == outcome(again, x)
    failures = [event for event in seen if isinstance(event, events.InternalFailure)]
    assert not failures
    graphs = [event for event in seen if isinstance(event, events.CaptureFinished) and event.graph is not None]
    # A break inside a callback of C code runs natively from that call on: nothing may be left to capture.
    assert graphs or name.startswith(DRIVEN_BY_C), "nothing was captured around the break"


@pytest.mark.parametrize("name", CASES)
def test_the_native_continuation_equals_eager(name: str) -> None:
    program, again = load(name, CASES[name]), load(name, CASES[name])
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    x = torch.tensor([1.0, 2.0])
    with natively():
        assert outcome(compiled, x) == outcome(again, x)


def test_there_are_at_least_200_combinations() -> None:
    assert len(CASES) >= 200
