"""Signals that come in the middle of a capture: their handlers run under the program's own state, once each."""

from __future__ import annotations

import _signal
import contextlib
import signal
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from stator.code.decode import decode
from stator.host import held_signals
from stator.interp import machine


class Stop(Exception):
    pass


@contextlib.contextmanager
def handled_by(handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        assert signal.getsignal(signal.SIGALRM) is handler, "the handler is the program's again"
        signal.signal(signal.SIGALRM, before)


def program(x: torch.Tensor, log: list[int]) -> torch.Tensor:
    log.append(len(log))
    y = x.sin() + 1
    return y * len(log)


def ringing_in_the_trace(monkeypatch: Any, times: int) -> list[int]:
    """The signal comes at the program's third instruction and those after it."""
    rung: list[int] = []

    def ringing(original: Any) -> Any:
        def handler(*args: Any, **kwargs: Any) -> Any:
            rung.append(1)
            if 3 <= len(rung) < 3 + times:
                signal.raise_signal(signal.SIGALRM)
            return original(*args, **kwargs)
        return handler

    for key, original in list(machine.HANDLERS.items()):
        monkeypatch.setitem(machine.HANDLERS, key, ringing(original))
    decode(program.__code__).analyses.clear()  # the handlers looked up before
    return rung


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    decode(program.__code__).analyses.clear()


@pytest.mark.parametrize("times", [1, 3])
def test_a_handler_waits_for_the_end_of_a_trace(monkeypatch: Any, times: int) -> None:
    """It runs, once as for signals that are pending, and its tensors are no part of the program."""
    made: list[torch.Tensor] = []
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    rung = ringing_in_the_trace(monkeypatch, times)
    log: list[int] = []
    with handled_by(lambda number, frame: made.append(torch.ones(2) * number)):
        assert torch.equal(compiled(torch.ones(3), log), program(torch.ones(3), []))
    assert len(rung) > 3 + times and log == [0]
    assert [type(each) for each in made] == [torch.Tensor]
    assert made[0].tolist() == [float(signal.SIGALRM)] * 2
    assert torch.equal(compiled(torch.ones(3), log), program(torch.ones(3), [0])) and len(made) == 1


def test_what_a_handler_raises_in_a_trace_is_the_callers(monkeypatch: Any) -> None:
    def stop(number: int, frame: Any) -> None:
        raise Stop(number)

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    ringing_in_the_trace(monkeypatch, 1)
    log: list[int] = []
    with handled_by(stop), pytest.raises(Stop):
        compiled(torch.ones(3), log)
    assert log == []
    monkeypatch.undo()
    decode(program.__code__).analyses.clear()
    assert torch.equal(compiled(torch.ones(3), log), program(torch.ones(3), [])) and log == [0]


def test_a_handler_runs_while_a_backend_compiles() -> None:
    """Compilers take minutes: a handler does not wait for them."""
    order: list[str] = []

    def slow(gm: Any, example_inputs: Any) -> Any:
        order.append("compiling")
        signal.raise_signal(signal.SIGALRM)
        order.append("compiled")
        return gm.forward

    compiled = stator.compile(program, backend=slow, options={"strict": True})
    with handled_by(lambda number, frame: order.append("handled")):
        assert torch.equal(compiled(torch.ones(3), []), program(torch.ones(3), []))
    assert order == ["compiling", "handled", "compiled"]


def test_a_backend_cannot_catch_what_a_handler_raises() -> None:
    def stop(number: int, frame: Any) -> None:
        raise Stop(number)

    def careful(gm: Any, example_inputs: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGALRM)
        except Exception:
            return lambda *args: (torch.zeros(3),)
        return gm.forward

    compiled = stator.compile(program, backend=careful)
    log: list[int] = []
    with handled_by(stop), pytest.raises(Stop) as caught:
        compiled(torch.ones(3), log)
    assert caught.value.args == (signal.SIGALRM,) and log == []
    with handled_by(lambda number, frame: None):
        assert torch.equal(compiled(torch.ones(3), log), program(torch.ones(3), [])) and log == [0]


def test_a_graph_that_fails_by_itself_beside_a_handler() -> None:
    """No signal came: the error is the graph's, and the call is made as it is."""
    def failing(gm: Any, example_inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise RuntimeError("no such kernel")
        return run

    def viewed(x: torch.Tensor) -> torch.Tensor:
        return x.view(3, 1) + 1  # an operation that may fail: what it raises is the program's

    compiled = stator.compile(viewed, backend=failing)
    with handled_by(lambda number, frame: None), pytest.warns(RuntimeWarning, match="no such kernel"):
        assert torch.equal(compiled(torch.ones(3)), viewed(torch.ones(3)))


def test_a_handler_that_raises_while_signals_are_held_back(monkeypatch: Any) -> None:
    """Later captures hold and put back the handlers that are there then."""
    for moment in (0, 1):  # as they are replaced, as they are put back
        rings = [False] * moment + [True]

        def ringing(number: int, handler: Any, rings: list[bool] = rings) -> Any:
            if number == signal.SIGALRM and rings and rings.pop(0):
                _signal.signal(signal.SIGALRM, stop)
                signal.raise_signal(signal.SIGALRM)
            return _signal.signal(number, handler)

        def stop(number: int, frame: Any) -> None:
            raise Stop(number)

        with handled_by(stop), monkeypatch.context() as patch:
            patch.setattr(held_signals, "_signal", types.SimpleNamespace(signal=ringing, getsignal=_signal.getsignal))
            with pytest.raises(Stop), held_signals.held_signals():
                pass
            assert held_signals._held is None and signal.getsignal(signal.SIGALRM) is stop
    log: list[int] = []
    with handled_by(lambda number, frame: log.append(number)):
        compiled = stator.compile(program, backend="eager")
        compiled(torch.ones(3), [])
        signal.raise_signal(signal.SIGALRM)
    assert log == [signal.SIGALRM]
