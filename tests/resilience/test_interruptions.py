"""Python that runs in the middle of ours: signal handlers, finalizers, trace and profile functions, debuggers.

In: a program under such an observer.  Out: the value of eager, the observer's view of the user's own lines, and a good
call afterwards.
"""

from __future__ import annotations

import bdb
import contextlib
import functools
import gc
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator
from stator.code.decode import decode
from stator.interp import machine


def busy(x: torch.Tensor, n: int) -> torch.Tensor:
    total = x
    for i in range(n):
        total = total + i * x.cos()
    return total


@contextlib.contextmanager
def ringing() -> Iterator[list[float]]:
    """A timer signal every 2 ms whose handler calls a compiled function; beside patches of torch that may take longer."""
    inner = stator.compile(lambda t: (t * 3).sum(), backend="eager")
    fired: list[float] = []
    running: list[int] = []
    one = torch.ones(2)
    inner(one)

    def handler(signum: int, frame: Any) -> None:
        if not running:
            running.append(signum)
            fired.append(float(inner(one)))
            running.clear()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        yield fired
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_signal_handler_runs_compiled_code() -> None:
    x = torch.randn(5)
    expected = {n: busy(x, n) for n in (3, 20, 40)}
    for _ in range(5):
        compiled = stator.compile(busy, backend="eager", dynamic=False)
        with ringing() as fired:
            results = [(n, compiled(x, n)) for n in (3, 20, 40, 3, 40)]
        assert all(torch.equal(value, expected[n]) for n, value in results)
        assert fired and set(fired) == {6.0}


class Stop(Exception):
    pass


def test_signal_handler_that_raises() -> None:
    """An exception out of a handler, at any moment of a capture, is the caller's; the next call is right."""
    x = torch.randn(5)

    def handler(signum: int, frame: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    stopped = 0
    try:
        for delay in (0.001, 0.003, 0.006, 0.01, 0.02, 0.03, 0.05, 0.08):
            compiled = stator.compile(busy, backend="eager", dynamic=False)
            signal.setitimer(signal.ITIMER_REAL, delay)
            try:
                first = compiled(x, 60)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                stopped += 1
            else:
                assert torch.equal(first, busy(x, 60))
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert torch.equal(compiled(x, 60), busy(x, 60))
            assert torch.is_grad_enabled()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped, "no handler ran during a capture"


class Handler:
    def __call__(self, signum: int, frame: Any) -> None:
        self.give_up(signum)

    def give_up(self, signum: int, frame: Any = None) -> None:
        raise Stop(signum)


@pytest.mark.parametrize("handler", [Handler(), Handler().give_up, functools.partial(Handler.give_up, Handler())])
def test_signal_handler_that_raises_while_the_graph_runs(handler: Any) -> None:
    """Its exception is the caller's, and no failure of the graph: the call is not made again."""
    calls: list[int] = []

    def interrupted(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                signal.raise_signal(signal.SIGALRM)
            return graph.forward(*args)
        return run

    x = torch.randn(5)
    compiled = stator.compile(lambda x: x.view(5, 1) + 1, backend=interrupted)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        assert torch.equal(compiled(x), x.view(5, 1) + 1)
        with pytest.raises(Stop):
            compiled(x)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert torch.equal(compiled(x), x.view(5, 1) + 1) and len(calls) == 3


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, RecursionError])
@pytest.mark.parametrize("step", [1, 5, 17, 26])
def test_failure_in_the_middle_of_a_trace(error: type[BaseException], step: int, monkeypatch: Any) -> None:
    """The engine itself fails at an instruction: nothing of the user's has changed, and the next call is right."""
    log: list[int] = []

    def program(x: torch.Tensor, box: dict[str, Any]) -> torch.Tensor:
        log.append(len(log))
        box["n"] = box.get("n", 0) + 1
        return busy(x, 3) + box["n"]

    compiled = stator.compile(program, backend="eager")
    count, table = 0, machine.HANDLERS

    def failing(original: Any) -> Any:
        def handler(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                raise error("injected")
            return original(*args, **kwargs)

        return handler

    for key, original in list(table.items()):
        monkeypatch.setitem(table, key, failing(original))
    decode(program.__code__).analyses.clear()  # the handlers looked up before
    x, box = torch.randn(3), {"n": 4}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="stator: capturing .* injected")
            first = compiled(x, box)
    except error:
        assert log == [] and box == {"n": 4}
    else:  # a failure of ours is told, and the call is made eagerly
        assert torch.equal(first, busy(x, 3) + 5) and log == [0] and box == {"n": 5}
    assert count >= step, "the fault was never met"
    monkeypatch.undo()
    decode(program.__code__).analyses.clear()
    log.clear()
    box["n"] = 4
    assert torch.equal(compiled(x, box), busy(x, 3) + 5)
    assert log == [0] and box == {"n": 5}


@pytest.mark.parametrize("when", ["before capture", "after capture"])
def test_trace_function_sees_the_users_lines(when: str) -> None:
    """With sys.settrace on, a debugger must be able to step through the user's function."""
    lines: list[int] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is busy.__code__:
            if event == "line":
                lines.append(frame.f_lineno)
            return tracer
        return None

    def traced(function: Any) -> Any:
        lines.clear()
        sys.settrace(tracer)
        try:
            return function(x, 2)
        finally:
            sys.settrace(None)

    compiled = stator.compile(busy, backend="eager")
    x = torch.randn(3)
    expected = traced(busy)
    eager_lines = list(lines)
    if when == "after capture":
        compiled(x, 2)
    assert torch.equal(traced(compiled), expected)
    assert lines == eager_lines and lines
    assert torch.equal(compiled(x, 2), expected)


@pytest.mark.parametrize("when", ["before capture", "after capture"])
def test_profile_function(when: str) -> None:
    calls: list[str] = []
    compiled = stator.compile(busy, backend="eager")
    x = torch.randn(3)
    if when == "after capture":
        compiled(x, 2)
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        got = compiled(x, 2)
    finally:
        sys.setprofile(None)
    assert torch.equal(got, busy(x, 2)) and calls
    assert torch.equal(compiled(x, 3), busy(x, 3))


def test_profile_function_around_a_break_below_c_code() -> None:
    """The profile function is called by CPython between the break and the end of the trace."""
    class Thing:
        n = 3

    def proxied(x: torch.Tensor) -> torch.Tensor:
        things = [Thing(), Thing()]
        return x * sum(shown.n for shown in list(map(weakref.proxy, things)))

    calls: list[str] = []
    compiled = stator.compile(proxied, backend="eager", options={"strict": True})
    x = torch.randn(3)
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        got = compiled(x)
    finally:
        sys.setprofile(None)
    assert torch.equal(got, x * 6) and calls
    assert not torch.overrides._get_current_function_mode_stack()


class Weighed:
    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __lt__(self, other: Any) -> bool:
        return self.weight < other.weight


def test_a_profile_function_is_no_part_of_what_c_code_calls(monkeypatch: Any) -> None:
    """It runs between `sorted` and each `__lt__`, and what it counts is its own affair."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    counts = {"call": 0}

    def profile(frame: Any, event: str, arg: Any) -> None:
        counts[event] = counts.get(event, 0) + 1

    def program(x: torch.Tensor, items: list[Weighed]) -> Any:
        ordered = sorted(items)
        return x * ordered[0].weight, ordered

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    x, items = torch.ones(2), [Weighed(3), Weighed(2), Weighed(5)]
    before = 0
    for _ in range(3):
        sys.setprofile(profile)
        try:
            value, ordered = compiled(x, items)
        finally:
            sys.setprofile(None)
        assert torch.equal(value, x * 2) and ordered == [items[1], items[0], items[2]]
        assert counts["call"] > before
        before = counts["call"]
    counts["call"] = 0
    compiled(x, items)
    assert counts["call"] == 0, "the compiled call changes what the profile function has counted"


def test_debugger() -> None:
    """bdb's trace function installed around compiled calls, with a breakpoint in the function's file."""
    class Quiet(bdb.Bdb):
        stops = 0

        def user_line(self, frame: Any) -> None:
            self.stops += 1
            self.set_continue()

    compiled = stator.compile(busy, backend="eager")
    x = torch.randn(3)
    debugger = Quiet()
    got = debugger.runcall(compiled, x, 4)
    assert torch.equal(got, busy(x, 4))
    assert debugger.stops
    sys.settrace(None)
    assert torch.equal(compiled(x, 4), busy(x, 4))


def test_collections_at_every_allocation() -> None:
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        compiled = stator.compile(busy, backend="eager", dynamic=False)
        x = torch.randn(3)
        for n in (2, 5, 2):
            assert torch.equal(compiled(x, n), busy(x, n))
    finally:
        gc.set_threshold(*before)


def test_finalizer_that_calls_compiled_code() -> None:
    """Objects die while the residual writes effects back; their finalizers call the same compiled function."""
    seen: list[float] = []

    class Dying:
        def __del__(self) -> None:
            seen.append(float(compiled(torch.ones(2), [])[0]))

    def fn(x: torch.Tensor, box: list[Any]) -> torch.Tensor:
        box.clear()
        return x + 1

    compiled = stator.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), [Dying()]), torch.full((2,), 2.0))
    gc.collect()
    assert seen == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("depth", [50, 400])
def test_deep_recursion(depth: int) -> None:
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else down(x + 1, n - 1)

    compiled = stator.compile(down, backend="eager", dynamic=False)
    x = torch.zeros(2)
    assert torch.equal(compiled(x, depth), down(x, depth))


def test_endless_recursion_is_a_recursion_error() -> None:
    def endless(x: torch.Tensor) -> torch.Tensor:
        return endless(x + 1)

    compiled = stator.compile(endless, backend="eager")
    limit = sys.getrecursionlimit()
    with pytest.raises(RecursionError):
        compiled(torch.zeros(2))
    assert sys.getrecursionlimit() == limit
    assert torch.equal(stator.compile(busy, backend="eager")(torch.ones(2), 2), busy(torch.ones(2), 2))


def test_called_near_the_recursion_limit() -> None:
    """The stack is nearly spent where the compiled function is called for the first time."""
    compiled = stator.compile(busy, backend="eager")
    x = torch.ones(2)
    expected = busy(x, 2)
    results: list[Any] = []

    def at_depth(n: int) -> None:
        if n:
            at_depth(n - 1)
        else:
            try:
                results.append(compiled(x, 2))
            except RecursionError:
                results.append(None)

    limit = sys.getrecursionlimit()
    worker = threading.Thread(target=lambda: [at_depth(limit - k) for k in (20, 60, 120, 400)])
    worker.start()
    worker.join(120)
    assert len(results) == 4
    assert all(value is None or torch.equal(value, expected) for value in results)
    assert torch.equal(compiled(x, 2), expected)
