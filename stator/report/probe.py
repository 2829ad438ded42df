"""Measure the cost of a graph break.

In: the breaks that one watched call went through, with the values that were live at each.  Out: for each, the time of
the native instruction itself (once, in that call) and the time that breaking adds (over many repetitions, without
running any code of the program again): leaving the segment, handing the values over, and the continuation's guards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_ROUNDS, _REPETITIONS = 5, 40


@dataclass
class Visit:
    """One passage through a break."""

    advance: Any  # emit.Advance
    values: tuple[Any, ...]
    outcome: Any = None
    native_seconds: float = 0.0


class BreakProbe:
    """Watches the breaks of one compiled call."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []

    def watch(self, advance: object, values: tuple[Any, ...], run: Callable[..., Any]) -> Callable[..., Any]:
        """`run`, timed."""
        visit = Visit(advance, values)
        self.visits.append(visit)

        def timed(operands: list[Any], invoke: object) -> Any:
            began = time.perf_counter()
            try:
                visit.outcome = run(operands, invoke)
            finally:
                visit.native_seconds = time.perf_counter() - began
            return visit.outcome

        return timed

    def guard_costs(self, guards: Iterable[Any], measure: Callable[..., float]) -> tuple[tuple[str, float], ...]:
        return costs_by_kind(guards, measure)

    def costs(self) -> list[tuple[Any, float, float]]:
        """(event of the break, microseconds in the instruction, microseconds that breaking adds), per passage."""
        return [(visit.advance.event, visit.native_seconds * 1e6, added_microseconds(visit)) for visit in self.visits]


def costs_by_kind(guards: Iterable[Any], measure: Callable[..., float]) -> tuple[tuple[str, float], ...]:
    """The microseconds of checking the guards of each kind alone."""
    kinds: dict[str, list[Any]] = {}
    for guard in guards:
        kinds.setdefault(guard.kind.name, []).append(guard)
    return tuple((kind, measure(each)) for kind, each in kinds.items())


def added_microseconds(visit: Visit) -> float:
    """Repeat the passage with the known outcome of its instruction."""
    if visit.outcome is None:
        return 0.0  # the instruction raised
    points, passage = visit.advance.points, visit.advance.repeated(visit.outcome)
    probe, points.probe = points.probe, None
    try:
        resume = passage(*visit.values)
        programs = [program for program, _, _ in resume.target.entries()][:1]
        rounds = []
        for _ in range(_ROUNDS):  # the least of them: other processes take turns in between
            began = time.perf_counter()
            for _ in range(_REPETITIONS):
                resume = passage(*visit.values)
                for program in programs:
                    program.check(resume.values)
            rounds.append(time.perf_counter() - began)
        return min(rounds) / _REPETITIONS * 1e6
    finally:
        points.probe = probe
