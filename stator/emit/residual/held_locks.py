"""A residual that runs under the locks its program takes.   with lock: ...  ->  acquire, check, run, release

The guards were checked before the locks were taken, and another thread may have run since: they are checked again
under the locks, and what the residual needs is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stator import _core, events
from stator.emit.residual.eager_calls import run_as_it_is
from stator.emit.residual.residual import Residual
from stator.guards.guard import Guard
from stator.guards.lower import lower
from stator.library.python.caches_and_locks import LockState, held_count
from stator.source import CallOf, Local, Source


class UnderLocks:
    """Called with every bound argument, then the locks."""

    __slots__ = ("program", "residual", "count", "states", "__weakref__")

    def __init__(self, guards: Sequence[Guard], residual: Residual, function: Callable[..., Any], count: int,
                 states: list[LockState]) -> None:
        kept = [guard for guard in guards if not _asks_for_a_lock(guard)]
        lowered = lower(kept, residual.wanted)
        self.program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, count, residual.packed)
        self.residual, self.count = function, count
        self.states = [(state.taken, state.depth - state.start) for state in states]

    def __call__(self, *values: Any) -> Any:
        locks = values[self.count:]
        taken: list[Any] = []
        for lock, (take, _) in zip(locks, self.states, strict=True):
            if take and not lock.acquire(False):
                _release(taken)
                return run_uncompiled("another thread holds a lock that the program takes")
            if take:
                taken.append(lock)
        try:
            found = self.program.values(values[:self.count])
            result = self.residual(*found) if found is not None else run_uncompiled(
                "another thread changed a fact before the program took its locks")
        except BaseException:
            _release(taken)
            raise
        if result is _core.EAGER:
            _release(taken)
            return result
        for lock, (_, change) in zip(locks, self.states, strict=True):
            for _ in range(abs(change)):
                lock.acquire(False) if change > 0 else lock.release()
        return result


def run_uncompiled(why: str) -> Any:
    events.emit(events.EagerFallback("a compiled function with locks", why))
    return run_as_it_is()


def _release(locks: list[Any]) -> None:
    for lock in reversed(locks):
        lock.release()


def _asks_for_a_lock(guard: Guard) -> bool:
    """Whether a guard says that a lock is free or held: true before the locks were taken, not now."""
    return type(guard.source) is CallOf and guard.source.fn.obj is held_count


def bound_arguments(count: int) -> list[Source]:
    return [Local(f"argument {index}", index) for index in range(count)]
