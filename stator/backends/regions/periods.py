"""Find what repeats in a sequence.   a b c x y x y x y z  ->  from 3: "x y", three times

In: numbers, one for each node; equal numbers for nodes of equal content.  Out: runs: stretches that repeat with a
period, without overlap, those that save most chosen first.  A run may go on for a part of its period: where it is cut
is decided later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_CANDIDATES = 12  # periods tried in one stretch


@dataclass(frozen=True)
class Run:
    """numbers[i] == numbers[i + period] for start <= i and i + period < stop."""

    start: int
    stop: int
    period: int

    @property
    def repeats(self) -> int:
        return (self.stop - self.start) // self.period

    @property
    def saving(self) -> int:
        """Nodes that need no compilation."""
        return (self.repeats - 1) * self.period


def find_runs(numbers: Sequence[int], least_repeats: int, least_period: int) -> list[Run]:
    """Runs in the order of the sequence."""
    found: list[Run] = []
    waiting = [(0, len(numbers))]
    while waiting:
        start, stop = waiting.pop()
        best = best_run(numbers, start, stop, least_repeats, least_period)
        if best is not None:
            found.append(best)
            waiting += [(start, best.start), (best.stop, stop)]
    return sorted(found, key=lambda run: run.start)


def best_run(numbers: Sequence[int], start: int, stop: int, least_repeats: int, least_period: int) -> Run | None:
    best: Run | None = None
    for period in candidate_periods(numbers, start, stop, least_repeats, least_period):
        for run in runs_of(numbers, start, stop, period):
            if run.repeats >= least_repeats and (best is None or (run.saving, -run.period) >
                                                 (best.saving, -best.period)):
                best = run
    return best


def candidate_periods(numbers: Sequence[int], start: int, stop: int, least_repeats: int,
                      least_period: int) -> list[int]:
    """Distances between nearest equals, the most frequent first: what occurs once in a period has that distance."""
    last: dict[int, int] = {}
    votes: Counter[int] = Counter()
    for place in range(start, stop):
        number = numbers[place]
        if number in last:
            votes[place - last[number]] += 1
        last[number] = place
    most = (stop - start) // max(least_repeats, 1)
    fitting = Counter({period: count for period, count in votes.items() if least_period <= period <= most})
    return [period for period, _ in fitting.most_common(_CANDIDATES)]


def runs_of(numbers: Sequence[int], start: int, stop: int, period: int) -> list[Run]:
    """The longest stretches with this period."""
    found = []
    begun = start
    for place in range(start, stop - period + 1):
        if place == stop - period or numbers[place] != numbers[place + period]:
            if place > begun:
                found.append(Run(begun, place + period, period))
            begun = place + 1
    return found
