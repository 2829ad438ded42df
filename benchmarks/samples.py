"""Repeated measurements and what to say of them.

In: measurements of one thing, taken in alternation with its rival.  Out: the median, and the quartiles as the
spread; the mean of a noisy machine says more about its neighbours than about the program.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Sample:
    """Measurements of one quantity, in one unit."""

    median: float
    low: float
    high: float
    measurements: tuple[float, ...]

    @classmethod
    def of(cls, measurements: list[float]) -> Sample:
        if len(measurements) == 1:
            return cls(measurements[0], measurements[0], measurements[0], tuple(measurements))
        low, median, high = statistics.quantiles(measurements, n=4, method="inclusive")
        return cls(median, low, high, tuple(measurements))

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Sample:
        """Samples from the form of as_json, with or without the single measurements."""
        return cls(found["median"], found["low"], found["high"], tuple(found.get("measurements", ())))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self, scale: float, unit: str) -> str:
        """`12.3 ms (11.9-12.8)`: the median and the quartiles."""
        median, low, high = (f"{value * scale:.3g}" for value in (self.median, self.low, self.high))
        if self.median * scale >= 1000:
            median, low, high = (f"{value * scale:,.0f}" for value in (self.median, self.low, self.high))
        return f"{median} {unit} ({low}-{high})"


def turns(items: list[Item], number: int) -> list[Item]:
    """The items in the order of this round: each goes first equally often."""
    start = number % len(items)
    return items[start:] + items[:start]
