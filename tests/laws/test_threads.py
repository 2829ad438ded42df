"""A lock of the program keeps its promise: what is read and written under it is one step for other threads."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from scenery import box

import stator
from stator.emit.residual.residual import UnderLocks

THREADS, ROUNDS = 4, 150


def total_of(rounds: int) -> float:
    """The sum that several threads add up, one at a time, through one compiled function."""
    state = box(lock=threading.Lock(), total=torch.zeros(()))

    def add(x: torch.Tensor) -> None:
        with state.lock:
            state.total = state.total + x

    compiled = stator.compile(add, backend="eager")
    one = torch.ones(())
    compiled(one)

    def work() -> None:
        for _ in range(rounds):
            compiled(one)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    kept = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(kept)
    return state.total.item()


def test_no_addition_is_lost() -> None:
    assert total_of(ROUNDS) == THREADS * ROUNDS + 1


def test_the_sum_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lock, additions are lost: the threads do meet."""
    def unlocked(self: Any, *values: Any) -> Any:
        return self.residual(*self.program.values(values[:self.count]))

    monkeypatch.setattr(UnderLocks, "__call__", unlocked)
    assert any(total_of(ROUNDS) != THREADS * ROUNDS + 1 for _ in range(400))
