"""Many specialisations of one function, and what a new one costs: `python -m benchmarks.many_entries`.

In: `x + n`, compiled once for each of 1, 8 and 64 numbers, the graph returning at once.  Out: nanoseconds of a call,
the numbers in random order, and seconds of one more compilation, beside torch._dynamo. CPU time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

import stator
from benchmarks.model_calls import remembered
from benchmarks.samples import Sample, turns
from benchmarks.sides import DYNAMO, STATOR

COUNTS = (1, 8, 64)
BATCHES, ROUNDS = 9, 30
LIMIT = 200

Function = Callable[..., Any]


def compiled(side: str) -> Function:
    def run(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n

    if side == STATOR.name:
        return stator.compile(run, backend=remembered, dynamic=False, recompile_limit=LIMIT)
    return torch.compile(run, backend=remembered, dynamic=False)


def fill(side: Any, x: torch.Tensor, order: list[int]) -> tuple[Function, Sample]:
    """The function with an entry for each number, and CPU seconds of making one."""
    side.make_cold()
    fn, seconds = compiled(side.name), []
    for n in order:
        start = time.process_time()
        fn(x, n)
        seconds.append(time.process_time() - start)
    return fn, Sample.of(seconds)


def measure(count: int, batches: int = BATCHES) -> dict[str, dict[str, Sample]]:
    """By side: `call` in nanoseconds, `compile` in seconds."""
    x = torch.randn(4)
    order = [1000 + number for number in range(count)]
    random.Random(0).shuffle(order)
    patch = torch._dynamo.config.patch(recompile_limit=LIMIT, accumulated_recompile_limit=10 * LIMIT)
    with torch.no_grad(), patch:
        filled = {side.name: fill(side, x, order) for side in (STATOR, DYNAMO)}
        calls: dict[str, list[float]] = {name: [] for name in filled}
        for number in range(batches):
            for name, (fn, _) in turns(list(filled.items()), number):
                start = time.thread_time_ns()
                for _ in range(ROUNDS):
                    for n in order:
                        fn(x, n)
                calls[name].append((time.thread_time_ns() - start) / ROUNDS / count)
    return {name: {"call": Sample.of(calls[name]), "compile": seconds} for name, (_, seconds) in filled.items()}


def main() -> None:
    torch.set_num_threads(1)
    for count in COUNTS:
        found = measure(count)
        ours, theirs = found[STATOR.name], found[DYNAMO.name]
        print(f"{count:3} entries: a call {ours['call'].text(1, 'ns')}, torch._dynamo {theirs['call'].text(1, 'ns')}; "
              f"one more entry {ours['compile'].text(1e3, 'ms')}, torch._dynamo {theirs['compile'].text(1e3, 'ms')}")


if __name__ == "__main__":
    main()
