"""Warnings of numpy's scalars and of tensors that become numbers: text, class, count and place as in eager."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import stator
from stator import events
from stator.interp import noted_effects
from stator.interp.calls import native_calls

INT, BYTE, SMALL, ZERO = numpy.int32(2**31 - 1), numpy.int8(127), numpy.uint8(1), numpy.float64(0)
FLOAT, HALF = numpy.float32(3e38), numpy.float16(60000)


class Answers:
    """Conversions that give instances of subclasses, of which CPython warns."""

    def __int__(self) -> Any:
        return True

    __index__ = __int__

    def __float__(self) -> Any:
        return type("Float", (float,), {})(2.0)


class Truncated:
    def __trunc__(self) -> int:
        return 3


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: (x + 1, INT + numpy.int32(1)),
    "multiply": lambda x: (x * 2, BYTE * numpy.int8(2)),
    "float32": lambda x: (x * 2, FLOAT * numpy.float32(10)),
    "float16": lambda x: (x, HALF + HALF),
    "with a Python number on the left": lambda x: (x, 200.0 * HALF),
    "divide": lambda x: (x, numpy.float64(1) / ZERO),
    "remainder": lambda x: (x, numpy.int32(1) % numpy.int32(0)),
    "floor": lambda x: (x, numpy.int32(1) // numpy.int32(0)),
    "unsigned": lambda x: (x, SMALL - numpy.uint8(2), -SMALL),
    "absolute": lambda x: (x, abs(numpy.int8(-128))),
    "invalid": lambda x: (x, numpy.float64("inf") - numpy.float64("inf")),
    "power": lambda x: (x, numpy.float64(10) ** numpy.float64(400)),
    "cast": lambda x: (x, numpy.float64(1e300).astype(numpy.float32)),
    "two of one call": lambda x: (x, numpy.complex64(1) / numpy.complex64(0)),
    "two on one line": lambda x: (x, INT + numpy.int32(1), INT + numpy.int32(1)),
    "of an array": lambda x: (x, numpy.array([1.0]) / numpy.array([0.0])),
    "of a function": lambda x: (x, numpy.sqrt(numpy.float64(-1))),
    "of an item": lambda x: numpy.float32(x.detach()[0].item()) * numpy.float32(3e38),
    "float": lambda x: float(x.sum()),
    "float twice": lambda x: (float(x.sum()), float(x[0])),
    "float of no gradient": lambda x: float(x.detach().sum()),
    "int": lambda x: int(x.sum()),
    "item": lambda x: x.sum().item(),
    "int that is a bool": lambda x: (x, int(Answers()), [1, 2][Answers()]),
    "float of a subclass": lambda x: (x, float(Answers()), math.sqrt(Answers())),  # type: ignore[arg-type]
    "truncated": lambda x: (x, int(Truncated())),
    "grad of no leaf": lambda x: (x * 2).grad,
}


def ignoring_errors(x: Any) -> Any:
    with numpy.errstate(all="ignore"):
        return x, INT + numpy.int32(1)


def raising_errors(x: Any) -> Any:
    with numpy.errstate(all="raise"):
        return x, INT + numpy.int32(1)


def filtered(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = INT + numpy.int32(1), float(x.sum())
    return a, INT + numpy.int32(1)


def without_grad(x: Any) -> Any:
    with torch.no_grad():
        return float(x.sum())


PROGRAMS |= {each.__name__: each for each in (ignoring_errors, raising_errors, filtered, without_grad)}


@pytest.fixture(autouse=True)
def always() -> Any:
    """torch warns each time, not once a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def said_by(fn: Any, action: Any, calls: int = 3) -> list[Any]:
    said = []
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter(action)
        for _ in range(calls):
            try:
                said.append(str(fn(torch.tensor([2.0, 3.0], requires_grad=True))))
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
    places = [(each.category, str(each.message), each.filename, each.lineno) for each in log]
    return [*said, *(place for place in places if not place[1].startswith("stator: "))]


@pytest.mark.parametrize("action", ["always", "default", "error"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, action: Any) -> None:
    fn = PROGRAMS[name]
    with events.record() as log:
        assert said_by(stator.compile(fn, backend="eager"), action) == said_by(fn, action)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]


def test_numpy_settings_are_guarded() -> None:
    fn = PROGRAMS["add"]
    compiled = stator.compile(fn, backend="eager")
    for setting in ("warn", "ignore", "raise", "warn"):
        with numpy.errstate(over=setting):
            assert said_by(compiled, "always", 1) == said_by(fn, "always", 1)


def test_filters_that_come_later_raise() -> None:
    for name in ("add", "float"):
        compiled = stator.compile(PROGRAMS[name], backend="eager")
        for action in ("ignore", "error", "always"):
            assert said_by(compiled, action) == said_by(PROGRAMS[name], action)


def test_operations_warn_once_when_they_run() -> None:
    """A function of torch that warns does so as the graph runs, and not to the trace."""
    def broadcast(x: Any) -> Any:
        return torch.nn.functional.mse_loss(x.detach(), x.detach()[:1])

    eager, compiled = said_by(broadcast, "always"), said_by(stator.compile(broadcast, backend="eager"), "always")
    assert [each[:2] for each in compiled[3:]] == [each[:2] for each in eager[3:]] and len(eager) == 6


def test_what_torch_warns_of_once_is_not_used_up() -> None:
    torch.set_warn_always(False)
    compiled = stator.compile(lambda x: math.sqrt(x.sum()), backend="eager")
    eager = said_by(lambda x: math.sqrt(x.sum()), "always")
    assert len(said_by(compiled, "always")) <= len(eager)


def test_is_noticed_without_the_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "WARNING_TYPES", frozenset())
    monkeypatch.setattr("stator.interp.vm.VM.note_conversion", lambda vm, value: None)
    for name in ("add", "float"):
        fn = PROGRAMS[name]
        assert said_by(stator.compile(fn, backend="eager"), "default", 2) != said_by(fn, "default", 2)
    assert noted_effects.WARNING_TYPES
