"""What graph breaks cost: graphs, breaks, capture time and the time of a call, beside torch._dynamo.

In: programs with a call that nobody captures, in the body of a loop or n calls deep.  Out: for each contender the
graphs it made, the breaks it counted, CPU seconds of its first call, cold, and CPU seconds of a later call.

torch._dynamo takes part twice, with `nested_graph_breaks` off (its default) and on; the program itself stands beside.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.utils import counters

from benchmarks.capture import WrongAnswer
from benchmarks.samples import Sample, turns
from benchmarks.sides import DYNAMO, STATOR, GraphCollector, Side
from stator import events

SEEN: collections.deque[float] = collections.deque(maxlen=1)


@torch.compiler.disable
def note(x: torch.Tensor) -> None:
    """What a program does that no graph can hold, at next to no cost of its own."""
    SEEN.append(1.0)


@dataclass(frozen=True)
class Contender:
    name: str
    side: Side
    nested: bool = False

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        with torch._dynamo.config.patch(nested_graph_breaks=self.nested, recompile_limit=64):
            yield


EAGER = Side("eager", lambda fn, backend: fn, lambda: None)
CONTENDERS = (
    Contender("eager", EAGER),  # the program as it is: what a call costs without anybody's graph
    Contender("stator", STATOR),
    Contender("torch._dynamo", DYNAMO),
    Contender("torch._dynamo, nested_graph_breaks", DYNAMO, nested=True),
)


@dataclass(frozen=True)
class Broken:
    """What one contender made of a program."""

    graphs: int
    breaks: int
    capture: Sample  # CPU seconds
    call: Sample  # CPU seconds

    def as_json(self) -> dict[str, Any]:
        return {"graphs": self.graphs, "breaks": self.breaks, "capture": self.capture.as_json(),
                "call": self.call.as_json()}


Program = Callable[[torch.Tensor], torch.Tensor]


def loop(iterations: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(iterations):
            x = torch.relu(x) + 1
            note(x)
            x = x * 0.5
        return x

    return run


def deep(depth: int) -> Program:
    """One break, `depth` calls deep."""

    def innermost(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        note(x)
        return x * 2

    def around(inner: Program) -> Program:
        def call(x: torch.Tensor) -> torch.Tensor:
            return torch.relu(inner(x + 1)) - 1

        return call

    program: Program = innermost
    for _ in range(depth - 1):
        program = around(program)

    def run(x: torch.Tensor) -> torch.Tensor:
        return program(x * 0.5) + 1

    return run


PROGRAMS: dict[str, Callable[[], Program]] = {
    "break in a loop, 100 iterations": lambda: loop(100),
    "break in a loop, 1,000 iterations": lambda: loop(1000),
    **{f"one break, {depth} {'call' if depth == 1 else 'calls'} deep": functools.partial(deep, depth)
       for depth in range(1, 7)},
}


def inspect(contender: Contender, name: str) -> tuple[int, int]:
    """Graphs and breaks; raises WrongAnswer where the result differs from eager's."""
    contender.side.make_cold()
    program, x, collector = PROGRAMS[name](), torch.randn(4, 4), GraphCollector()
    counters.clear()
    with contender.settings(), torch.no_grad(), events.record() as log:
        compiled = contender.side.compile(program, collector)
        for _ in range(2):
            if not torch.equal(compiled(x), program(x)):
                raise WrongAnswer(f"{contender.name} on {name}")
    if contender.side is STATOR:
        return len(collector.graphs), sum(isinstance(event, events.GraphBreak) for event in log)
    return len(collector.graphs), sum(counters["graph_break"].values())


def measure_once(contender: Contender, name: str, calls: int) -> tuple[float, float]:
    """CPU seconds of the first call, cold, and of a later one."""
    contender.side.make_cold()
    program, x = PROGRAMS[name](), torch.randn(4, 4)
    gc.disable()
    try:
        with contender.settings(), torch.no_grad():
            start = time.process_time()
            compiled = contender.side.compile(program, "eager")
            compiled(x)
            capture = time.process_time() - start
            compiled(x)
            start = time.process_time()
            for _ in range(calls):
                compiled(x)
            return capture, (time.process_time() - start) / calls
    finally:
        gc.enable()


def measure(name: str, contenders: list[Contender], rounds: int, progress: Callable[[], Any]) -> dict[str, Broken]:
    """Alternate the contenders `rounds` times; `progress` is called after each measurement."""
    found = {each.name: inspect(each, name) for each in contenders}
    calls = 5 if "1,000" in name else 20 if "100" in name else 200
    taken: dict[str, list[tuple[float, float]]] = {each.name: [] for each in contenders}
    for number in range(rounds):
        for each in turns(contenders, number):
            taken[each.name].append(measure_once(each, name, calls))
            progress()
    return {
        each.name: Broken(*found[each.name], Sample.of([pair[0] for pair in taken[each.name]]),
                          Sample.of([pair[1] for pair in taken[each.name]]))
        for each in contenders
    }
