"""State of Python's libraries.   lock.acquire(), cached(x), var.set(x), random.seed(0)  ->  notes for the residual"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stator.host.mechanism import Mechanism


@dataclass(slots=True, eq=False)
class LockState(Mechanism):
    """Locks from outside."""

    used: dict[int, Any] = field(default_factory=dict)  # how the program has used each
    answers: dict[Any, Any] = field(default_factory=dict)  # state that was read of locks that it has not used

    def allows_replay(self) -> bool:
        return not (self.used or self.answers)


@dataclass(slots=True, eq=False)
class CacheState(Mechanism):
    """Results of functions under functools.lru_cache."""

    fills: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)  # of an outside cache -> its new results

    def allows_replay(self) -> bool:
        return not self.fills


@dataclass(slots=True, eq=False)
class ContextState(Mechanism):
    """Context variables, and the context of decimals."""

    sets: list[Any] = field(default_factory=list)  # values of variables that are set now and were not at the start
    decimal: Any = None  # on which the trace computes decimals

    def fingerprint(self) -> Any:
        return [id(each) for each in self.sets]

    def has_changes(self) -> bool:
        return bool(self.sets)


@dataclass(slots=True, eq=False)
class RandomState(Mechanism):
    """Random streams whose numbers the trace knows."""

    known: dict[int, Any] = field(default_factory=dict)  # of the trace's own (see known_random_streams)
    seeded: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # an outside stream -> it, the one in its place
