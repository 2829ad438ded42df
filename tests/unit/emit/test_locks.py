"""A residual that takes its program's locks checks again, under them, what may have changed before it had them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import stator
from stator import _core
from stator.emit.residual.residual import UnderLocks


def compiled_with(lock: Any, scale: list[float]) -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return x * scale[0]

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [scale[0]] * 2
    (_, residual, _), *others = compiled.entries()
    assert type(residual) is UnderLocks and not others
    return residual


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_facts_are_checked_again_under_the_lock(make: Any) -> None:
    lock, scale, x = make(), [3.0], torch.ones(2)
    residual = compiled_with(lock, scale)
    assert residual(x, lock).tolist() == [3.0, 3.0]
    scale[0] = 5.0  # as another thread may, between the guards and the lock
    assert residual(x, lock) is _core.EAGER
    assert taken_elsewhere(lock), "the lock is free again"


def test_a_lock_that_somebody_has() -> None:
    lock, scale = threading.Lock(), [3.0]
    residual = compiled_with(lock, scale)
    with lock:
        assert residual(torch.ones(2), lock) is _core.EAGER
        assert lock.locked()


def taken_elsewhere(lock: Any) -> bool:
    """Whether another thread can take the lock now."""
    got: list[bool] = []

    def take() -> None:
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]


def test_that_it_was_free_is_not_asked_again_under_it() -> None:
    lock = threading.Lock()

    def program(x: torch.Tensor) -> torch.Tensor:
        if lock.locked():
            return x
        with lock:
            return x * 2

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    compiled(torch.ones(2))
    (_, residual, _), *_ = compiled.entries()
    assert residual(torch.ones(2), lock).tolist() == [2.0, 2.0]
    with lock:
        assert compiled(torch.ones(2)).tolist() == [1.0, 1.0]
