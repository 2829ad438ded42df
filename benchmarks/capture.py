"""How long it takes to capture a program, cold.

In: a workload and the sides.  Out: CPU seconds of `compile(fn)` and its first call, with backend "eager", as
a `Sample` for each side, and how much each side captured.

Both sides run in one process, in alternation; before each measurement the side forgets everything, the
program is built anew and garbage is collected. CPU time, because a shared machine's wall time measures its
neighbours. The first call runs the captured operations too, on both sides alike.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.samples import Sample, turns
from benchmarks.sides import GraphCollector, Side
from benchmarks.workloads import Workload


class WrongAnswer(Exception):
    """A side's result differs from eager's: its time means nothing."""


@dataclass(frozen=True)
class Captured:
    """Result of one side for a workload."""

    seconds: Sample
    graphs: int
    operations: int


def warm_up(side: Side) -> None:
    """Import and initialise what a first compilation loads, on a function that no workload uses."""

    def other(x: torch.Tensor, scale: float) -> torch.Tensor:
        return (x * scale).sum(dim=0)

    for _ in range(2):
        side.make_cold()
        side.compile(other, "eager")(torch.ones(3, 3), 2.0)
    side.make_cold()


def inspect(side: Side, workload: Workload) -> tuple[int, int]:
    """Graphs and operations that the side captures; raises WrongAnswer where it differs from eager."""
    side.make_cold()
    fn, args = workload.build()
    collector = GraphCollector()
    with torch.no_grad():
        expected = fn(*args)
        actual = side.compile(fn, collector)(*args)
    try:
        torch.testing.assert_close(actual, expected)
    except AssertionError as difference:
        raise WrongAnswer(f"{side.name} on {workload.name}: {difference}") from difference
    return len(collector.graphs), collector.operations


def measure_once(side: Side, workload: Workload) -> float:
    side.make_cold()
    fn, args = workload.build()
    gc.disable()
    try:
        with torch.no_grad():
            start = time.process_time()
            side.compile(fn, "eager")(*args)
            return time.process_time() - start
    finally:
        gc.enable()


def measure(
    workload: Workload, sides: list[Side], rounds: int, progress: Callable[[], Any]
) -> dict[str, Captured]:
    """Alternate the sides `rounds` times; `progress` is called after each measurement."""
    captured = {side.name: inspect(side, workload) for side in sides}
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in turns(sides, number):
            seconds[side.name].append(measure_once(side, workload))
            progress()
    return {
        side.name: Captured(Sample.of(seconds[side.name]), *captured[side.name])
        for side in sides
    }
