"""Workloads of the benchmarks.

In: nothing.  Out: a registry of named workloads; building one gives a fresh callable and its arguments, so
that no cache of an earlier capture can know the objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Program = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Workload:
    name: str
    build: Callable[[], Program]


WORKLOADS: dict[str, Workload] = {}


def workload(name: str) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Register a builder under a name; models are registered in the same way."""

    def register(build: Callable[[], Program]) -> Callable[[], Program]:
        if name in WORKLOADS:
            raise ValueError(f"the workload {name!r} is registered twice")
        WORKLOADS[name] = Workload(name, build)
        return build

    return register


@workload("1,000 pointwise ops")
def pointwise() -> Program:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(250):
            x = x + y
            x = x * 0.5
            x = torch.relu(x)
            x = x - 1.0
        return x

    return run, (torch.randn(4, 4), torch.randn(4, 4))


@workload("100 Linears")
def linears() -> Program:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(100))).eval(), (torch.randn(2, 8),)


@workload("heavy pure Python")
def pure_python() -> Program:
    """About 50,000 bytecodes of closures, lists, dicts, strings and classes, and three tensor operations."""

    class Tally:
        def __init__(self) -> None:
            self.total = 0

        def add(self, amount: int) -> int:
            self.total += amount
            return self.total

    def scaler(factor: int) -> Callable[[int], int]:
        def scale(value: int) -> int:
            return (value * factor + 7) % 1009

        return scale

    def schedule(rounds: int) -> tuple[int, dict[str, list[int]]]:
        steps = [scaler(factor) for factor in range(1, 9)]
        groups: dict[str, list[int]] = {}
        tally = Tally()
        value = 1
        for number in range(rounds):
            for step in steps:
                value = step(value)
                if value % 3 == 0:
                    tally.add(value)
                elif value % 5 == 0:
                    tally.add(-1)
            groups.setdefault(f"group {value % 7}", []).append(value)
            if number % 16 == 0:
                ordered = sorted(groups, key=lambda name: len(groups[name]))
                groups = {name: groups[name][-8:] for name in ordered}
        return tally.total, groups

    def run(x: torch.Tensor) -> torch.Tensor:
        total, groups = schedule(150)
        x = x * (total % 13)
        x = x + sum(max(values) for values in groups.values()) % 17
        return torch.relu(x)

    return run, (torch.randn(4, 4),)
