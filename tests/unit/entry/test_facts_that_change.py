"""A fact that changes during its own capture is named with its cause; the call is right, and nobody calls it a bug."""

from __future__ import annotations

import io
import sys
import time
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.capture import stages
from stator.interp import mechanisms

COUNT = 0
X = torch.ones(2)


def scaled(x: Any) -> Any:
    return x * COUNT


def bump(*ignored: Any) -> None:
    global COUNT
    COUNT += 1


def bumping_backend(gm: Any, example_inputs: Any) -> Any:
    bump()
    return gm


def once(gm: Any, example_inputs: Any) -> Any:
    if COUNT < 11:
        bump()
    return gm


@pytest.fixture(autouse=True)
def count() -> None:
    global COUNT
    COUNT = 10


def test_a_backend_that_changes_a_global() -> None:
    compiled = stator.compile(scaled, backend=bumping_backend, options={"strict": True})
    with events.record() as log, pytest.warns(RuntimeWarning, match=r"by the backend.*: COUNT == 12; the call runs"):
        for _ in range(2):
            assert torch.equal(compiled(X), X * COUNT)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]
    whys = [event.why for event in log if isinstance(event, events.EagerFallback)]
    assert len(whys) == 2 and all("COUNT ==" in why for why in whys)


def test_a_fact_that_changes_once_is_captured_again() -> None:
    compiled = stator.compile(scaled, backend=once, options={"strict": True})
    with events.record() as log:
        assert torch.equal(compiled(X), X * 11)
        assert torch.equal(compiled(X), X * 11)
    assert not [event for event in log if isinstance(event, events.EagerFallback | events.InternalFailure)]


def test_a_listener_that_changes_a_global() -> None:
    compiled = stator.compile(scaled, backend="eager", options={"strict": True})
    stop = events.subscribe(lambda event: bump() if isinstance(event, events.BackendCompiled) else None)
    try:
        with pytest.warns(RuntimeWarning, match="a listener of events"):
            assert torch.equal(compiled(X), X * COUNT)
    finally:
        stop()
    assert torch.equal(compiled(X), X * COUNT)


def test_a_guard_that_is_wrong_is_still_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rejecting:
        def __init__(self, *args: Any) -> None:
            self.check = lambda bound: 0

    monkeypatch.setattr(stages._core, "GuardProgram", Rejecting)
    with events.record() as log, pytest.warns(RuntimeWarning, match="bug in Stator"):
        assert stator.compile(scaled, backend="eager")(X).tolist() == [10, 10]
    assert any(isinstance(event, events.InternalFailure) for event in log)


# ---------------------------------------------------------------------- long captures


def counted(x: Any, n: int) -> Any:
    total = 0
    while total < n:
        total += 1
    return x + total


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_progress_is_an_event_and_shown_on_terminals(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(mechanisms.time, "monotonic", lambda: float(next(clock)))
    with events.record() as log:
        assert torch.equal(stator.compile(counted, backend="eager")(X, 3000), X + 3000)
    monkeypatch.undo()
    shown = [event for event in log if isinstance(event, events.CaptureProgress)]
    assert shown and shown[0].name == "counted" and shown[0].iterations >= 1024
    assert shown[0].filename == __file__
    lines = stream.getvalue().splitlines()
    assert len(lines) == (len(shown) if stream.isatty() else 0)
    assert all("capturing counted" in line and "loop iterations" in line for line in lines)


def test_the_limit_of_iterations_is_a_setting() -> None:
    with stator.config.patch(capture_iteration_limit=2000), events.record() as log:
        assert torch.equal(stator.compile(counted, backend="eager")(X, 3000), X + 3000)
    (event,) = [event for event in log if isinstance(event, events.GraphBreak)]
    assert event.code == "SB011" and "2,000 loop iterations (stator.config.capture_iteration_limit)" in event.cause


@pytest.mark.parametrize("name", ["capture_iteration_limit", "capture_progress_seconds"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True, None])
def test_settings_are_validated(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        setattr(stator.config, name, value)


def test_a_short_capture_reports_nothing() -> None:
    started = time.monotonic()
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("error")
        stator.compile(counted, backend="eager")(X, 300)
    assert time.monotonic() - started > 5 or not [e for e in log if isinstance(e, events.CaptureProgress)]
