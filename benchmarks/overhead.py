"""Cost of a compiled call beyond its graph.

In: a case and the sides.  Out: nanoseconds per call, as a `Sample`, of the bare graph (`graph`) and of each
side's compiled function with all its guards, backend "eager".

Batches of calls are timed in alternation, in CPU time of this thread. The bare graph is the one that
torch._dynamo captured, called with the very inputs it was given.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.samples import Sample, turns
from benchmarks.sides import DYNAMO, GraphCollector, Side
from benchmarks.workloads import Program

GRAPH = "graph"


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], Program]


def add_one() -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return run, (torch.randn(4),)


def one_linear() -> Program:
    return nn.Linear(8, 8).eval(), (torch.randn(2, 8),)


def configured() -> Program:
    """Reads a dict, an attribute, a global and a closure: facts of every usual kind to guard."""

    class Config:
        def __init__(self) -> None:
            self.scale = 2.0
            self.layers = {"first": 1.5, "second": 2.5}

    config = Config()
    shift = 3

    def run(x: torch.Tensor, names: list[str]) -> torch.Tensor:
        for name in names:
            x = x * config.layers[name]
        return torch.add(x * config.scale, shift)

    return run, (torch.randn(4), ["first", "second"])


def many_modules() -> Program:
    """200 modules and 400 parameters that do next to nothing: the cost of guarding a large model."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))
            self.bias = nn.Parameter(torch.zeros(()))
            self.enabled = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight + self.bias if self.enabled else x

    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.ModuleList(Gate() for _ in range(200))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for gate in self.gates:
                x = gate(x)
            return x + 1

    return Tower().eval(), (torch.randn(4),)


def tensors_in_a_list() -> Program:
    """A list of 100 tensors: an item and its metadata to check each."""

    def run(xs: list[torch.Tensor]) -> torch.Tensor:
        return xs[0] + len([x for x in xs if x.dim() == 1])

    return run, ([torch.randn(4) for _ in range(100)],)


def large_config() -> Program:
    """A dict of 1,000 settings, all of them read."""
    config = {f"setting_{number}": number for number in range(1000)}

    def run(x: torch.Tensor) -> torch.Tensor:
        total = 0
        for name in config:
            total += config[name]
        return x + total

    return run, (torch.randn(4),)


CASES = {
    case.name: case
    for case in (
        Case("x + 1", add_one),
        Case("one Linear", one_linear),
        Case("dict, list and attribute reads", configured),
        Case("200 modules, x + 1", many_modules),
        Case("100 tensors in a list", tensors_in_a_list),
        Case("a dict of 1,000 settings", large_config),
    )
}


def bare_graph(program: Program) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The captured graph itself, and what to call it with."""
    fn, args = program
    collector = GraphCollector()
    DYNAMO.make_cold()
    DYNAMO.compile(fn, collector)(*args)
    if len(collector.graphs) != 1:
        raise ValueError(f"a case must be one graph, and {DYNAMO.name} made {len(collector.graphs)}")
    return collector.graphs[0].forward, collector.inputs[0]


def time_batch(fn: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    """Nanoseconds per call."""
    steps = range(calls)
    start = time.thread_time_ns()
    for _ in steps:
        fn(*args)
    return (time.thread_time_ns() - start) / calls


def measure(
    case: Case, sides: list[Side], batches: int, calls: int, progress: Callable[[], Any]
) -> dict[str, Sample]:
    """Nanoseconds per call, for "graph" and for each side's name."""
    program = case.build()
    fn, args = program
    with torch.no_grad():
        targets: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [(GRAPH, *bare_graph(program))]
        for side in sides:
            side.make_cold()
            targets.append((side.name, side.compile(fn, "eager"), args))
        for _, target, inputs in targets:
            time_batch(target, inputs, max(10, calls // 10))
        nanoseconds: dict[str, list[float]] = {name: [] for name, _, _ in targets}
        gc.collect()
        gc.disable()
        try:
            for number in range(batches):
                for name, target, inputs in turns(targets, number):
                    nanoseconds[name].append(time_batch(target, inputs, calls))
                progress()
        finally:
            gc.enable()
    return {name: Sample.of(values) for name, values in nanoseconds.items()}
