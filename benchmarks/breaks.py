"""Cost of graph breaks: graphs, breaks, capture time and the time of a call, beside torch._dynamo.

In: programs with a call that nobody captures, in the body of a loop or n calls deep.  Out: for each contender the
graphs it made, the breaks it counted, CPU seconds of its first call, cold, and CPU seconds of a later call.

torch._dynamo takes part twice, with `nested_graph_breaks` off (its default) and on; the program itself stands beside.

    python -m benchmarks.breaks [--rounds 15]

measures later calls alone, in short turns: CPU time beside eager and torch.compile, and the time that one break adds.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import gc
import operator
import statistics
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
    """An instruction that no graph can hold, at next to no cost of its own."""
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
    """Result of one contender for a program."""

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


def one_operation(iterations: int) -> Program:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(iterations):
            x = x * 0.5
            note(x)
        return x

    return run


def straight(x: torch.Tensor) -> torch.Tensor:
    """Ten breaks, one behind the other."""
    for each in (straight_half, straight_half):
        x = each(x)
    return x


def straight_half(x: torch.Tensor) -> torch.Tensor:
    note(x + 1)
    note(x + 2)
    note(x + 3)
    note(x + 4)
    note(x + 5)
    return x * 0.5


def deep_loop(iterations: int) -> Program:
    """A break three calls deep, in a loop."""
    inner = deep(2)

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(iterations):
            x = inner(x)
        return x

    return run


def growing(iterations: int) -> Program:
    """A break in a loop that fills a list and a dict, of which eight items are kept."""

    def run(x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        last: dict[str, torch.Tensor] = {}
        for _ in range(iterations):
            x = x * 0.5
            found.append(x)
            last["x"] = x
            if len(found) == 8:
                found.clear()
            note(x)
        return last["x"]

    return run


# Programs of `python -m benchmarks.breaks`, and the breaks of one call.
CALLS: dict[str, tuple[Callable[[], Program], int]] = {
    "loop, 3 operations a break": (lambda: loop(1000), 1000),
    "loop, 1 operation a break": (lambda: one_operation(1000), 1000),
    "loop, break 3 calls deep": (lambda: deep_loop(1000), 1000),
    "loop, growing list and dict": (lambda: growing(1000), 1000),
    "straight line": (lambda: straight, 10),
    "one break, 3 calls deep": (lambda: deep(3), 1),
}


def later_calls(build: Callable[[], Program], count: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of CPU time of a later call of each side, in short turns, with garbage collection off."""
    x = torch.randn(4, 4)
    sides = {"eager": EAGER, "stator": STATOR, "torch.compile": DYNAMO}
    made = {name: side.compile(build(), "eager") for name, side in sides.items()}
    calls = max(1, 2000 // count)
    taken: dict[str, list[float]] = {name: [] for name in made}
    gc.disable()
    try:
        with torch.no_grad():
            for fn in made.values():
                for _ in range(3):
                    fn(x)
            for number in range(rounds):
                for name in turns(list(made), number):
                    start = time.process_time()
                    for _ in range(calls):
                        made[name](x)
                    taken[name].append((time.process_time() - start) / calls * 1e6)
    finally:
        gc.enable()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print("medians of CPU time; ratios and additions are medians over rounds\n")
    columns = ("program", "eager", "stator", "torch.compile", "/ eager", "/ torch", "a break adds")
    print("{:30} {:>11} {:>11} {:>14} {:>8} {:>8} {:>13}".format(*columns))
    for name, (build, count) in CALLS.items():
        taken = later_calls(build, count, rounds)
        eager, ours, theirs = taken.values()
        times = [f"{statistics.median(each):,.0f} us" for each in taken.values()]
        ratios = [f"{statistics.median(map(operator.truediv, ours, side)):.2f}" for side in (eager, theirs)]
        added = statistics.median(map(operator.sub, ours, eager)) / count
        print("{:30} {:>11} {:>11} {:>14} {:>8} {:>8} {:>13}".format(name, *times, *ratios, f"{added:.2f} us"))


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


if __name__ == "__main__":
    main()
