"""Sixteen threads calling, compiling and recompiling the same and different functions at once.

STATOR_THREAD_CALLS sets the calls of each thread (CI: 400; the figure in docs/trust.md: 10,000).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from stator import events

THREADS = 16
CALLS = int(os.environ.get("STATOR_THREAD_CALLS", "400"))


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], None]) -> None:
    """Run work(i) in every thread, started together; the first failure is raised, a hang is one."""
    barrier = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            barrier.wait()
            work(index)
        except BaseException as error:  # handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive(), "deadlock"
    if failures:
        raise failures[0]


def test_one_function_many_threads_compiles_once() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).relu() * 2

    compiled = stator.compile(fn, backend="eager")
    x = torch.randn(8)
    expected = fn(x)
    with events.record() as log:
        in_threads(lambda index: check_equal(compiled, (x,), expected))
    assert sum(isinstance(event, events.CaptureFinished) and "compiles_once" in event.name for event in log) == 1


def check_equal(compiled: Any, args: tuple[Any, ...], expected: torch.Tensor) -> None:
    assert torch.equal(compiled(*args), expected)


def test_recompiles_from_every_thread() -> None:
    """Each thread needs its own specialisations; all share the entries."""
    def fn(x: torch.Tensor, k: int, flag: bool) -> torch.Tensor:
        y = x * k
        if flag:
            y = y + x.sum()
        return y

    compiled = stator.compile(fn, backend="eager", recompile_limit=200)
    tensors = [torch.randn(n + 1, 3) for n in range(5)]

    def work(index: int) -> None:
        for call in range(CALLS):
            x = tensors[(call + index) % 5]
            k, flag = (call * 7 + index) % 3, bool((call + index) & 1)
            assert torch.equal(compiled(x, k, flag), fn(x, k, flag)), (index, call)

    in_threads(work)


def test_different_functions_and_breaks() -> None:
    """Every thread has its own function, with a graph break and an effect on its own list."""
    def make(index: int) -> tuple[Any, list[float]]:
        seen: list[float] = []

        def fn(x: torch.Tensor) -> torch.Tensor:
            y = x + index
            seen.append(index)
            stator.graph_break()
            return y * 2

        return fn, seen

    made = [make(index) for index in range(THREADS)]
    compiled = [stator.compile(fn, backend="eager") for fn, _ in made]
    x = torch.ones(3)

    def work(index: int) -> None:
        for _ in range(CALLS // 4):
            assert torch.equal(compiled[index](x), (x + index) * 2)

    in_threads(work)
    for index, (_, seen) in enumerate(made):
        assert seen == [index] * (CALLS // 4)


def test_settings_of_a_thread_are_its_own() -> None:
    """Grad mode and autocast belong to the thread: guards are checked against the calling thread's."""
    weight = torch.ones(3, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * weight

    compiled = stator.compile(fn, backend="eager")
    x = torch.randn(3)

    def work(index: int) -> None:
        for _ in range(CALLS // 4):
            with torch.set_grad_enabled(index % 2 == 0):
                assert compiled(x).requires_grad == (index % 2 == 0)

    in_threads(work)


def test_reset_while_others_call() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.cos() + 1

    compiled = stator.compile(fn, backend="eager")
    x = torch.randn(4)
    expected = fn(x)

    def work(index: int) -> None:
        for call in range(CALLS // 8):
            if index == 0 and call % 10 == 0:
                stator.reset()
            assert torch.equal(compiled(x), expected)

    in_threads(work)


def test_a_module_in_threads() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    compiled = stator.compile(model, backend="eager")
    inputs = [torch.randn(n, 4) for n in (1, 2, 3, 7)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]

    def work(index: int) -> None:
        with torch.no_grad():
            for call in range(CALLS // 4):
                which = (call + index) % 4
                assert torch.allclose(compiled(inputs[which]), expected[which])

    in_threads(work)


def test_another_thread_does_not_hide_a_bug_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards that reject the very call they came from are a bug, also where a thread might have changed a fact."""
    def reject(self: Any, bound: Any) -> int:
        return 0

    class Rejecting:
        def __init__(self, *args: Any) -> None:
            self.values = program(*args).values

        check = reject

    program = stator._core.GuardProgram

    leave = threading.Event()
    company = threading.Thread(target=leave.wait, args=(60,))
    company.start()
    monkeypatch.setattr("stator.capture.miss._core.GuardProgram", Rejecting)
    try:
        with events.record() as log, pytest.warns(RuntimeWarning, match="the guards reject the call"):
            assert stator.compile(lambda x: x + 1, backend="eager")(torch.zeros(2)).tolist() == [1, 1]
    finally:
        leave.set()
        company.join()
    assert any(isinstance(event, events.InternalFailure) for event in log)


def test_different_functions_with_recompiles_and_breaks() -> None:
    """Four functions, each called by four threads with sizes, flags and texts that change: captures, recompiles and resumed
    frames of all of them are under way at once."""
    def make(index: int) -> Any:
        def fn(x: torch.Tensor, k: int, mode: str) -> Any:
            y = x * k + index
            if mode == "break":
                stator.graph_break()
                y = y + x.shape[0]
            parts = [y.sum() for _ in range(k)]
            return y, len(parts), mode + str(index)

        return fn

    functions = [make(index) for index in range(4)]
    compiled = [stator.compile(fn, backend="eager", recompile_limit=100) for fn in functions]
    tensors = [torch.randn(n + 2, 3) for n in range(4)]

    def work(index: int) -> None:
        fn, subject = functions[index % 4], compiled[index % 4]
        for call in range(CALLS // 4):
            x, k, mode = tensors[(call + index) % 4], (call * 5 + index) % 4, ("break", "whole", "other")[(call + index) % 3]
            (left, count, text), (right, other, name) = fn(x, k, mode), subject(x, k, mode)
            assert torch.equal(left, right), (index, call)
            assert (count, text) == (other, name)

    in_threads(work)
