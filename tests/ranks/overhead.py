"""Measure calls beside a process group.   python -m tests.ranks.overhead [--backend inductor] [--rounds 15]

In: a function without collectives, before and after a fake process group of two ranks exists; a function with 16
all_reduces under Stator and torch.compile.  Out: ratios of the CPU time of one call, the median of rounds that
alternate between both sides.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import stator

Call = Callable[[], object]


def small(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def with_collectives(x: torch.Tensor) -> torch.Tensor:
    for _ in range(16):
        x = x * 2
        dist.all_reduce(x)
    return x


def microseconds(call: Call, count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - begun) / count * 1e6


def medians(calls: dict[str, Call], count: int, rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(microseconds(call, count))
    return {name: statistics.median(each) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks.overhead")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    x = torch.ones(4)
    hit = stator.compile(small, backend="eager")
    hit(x)
    rows: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(2 * given.rounds):  # a group that comes and goes
        if turn % 2:
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        hit(x)
        rows["with" if turn % 2 else "without"].append(microseconds(lambda: hit(x), 20_000))
        if turn % 2:
            dist.destroy_process_group()
    without, beside = (statistics.median(rows[name]) for name in ("without", "with"))
    print(f"a call without collectives: {without:.3f} us without a process group, {beside:.3f} us with one: "
          f"{beside / without:.2f}")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    sides = {"stator": stator.compile(with_collectives, backend=given.backend),
             "torch": torch.compile(with_collectives, backend=given.backend)}
    for side in sides.values():
        side(torch.ones(64, 64))
    y = torch.ones(64, 64)
    found = medians({name: lambda side=side: side(y) for name, side in sides.items()}, 300, given.rounds)  # type: ignore
    print(f"16 all_reduces, {given.backend}, fake group: stator {found['stator']:.1f} us, torch.compile "
          f"{found['torch']:.1f} us of CPU a call: {found['stator'] / found['torch']:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
