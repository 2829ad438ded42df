"""Many specialisations of one function, and what a new one costs: `python -m benchmarks.many_entries [--json FILE]`.

In: `x + n`, compiled once for each of 1, 8 and 64 numbers, the graph returning at once.  Out: nanoseconds of a call,
the numbers in random order, and milliseconds of one more compilation, beside torch._dynamo. CPU time, medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import stator
from benchmarks.model_calls import remembered
from benchmarks.sides import DYNAMO, STATOR

COUNTS = (1, 8, 64)
BATCHES, ROUNDS = 9, 30
LIMIT = 200


def compiled(side: str) -> Callable[..., Any]:
    def run(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n

    if side == STATOR.name:
        return stator.compile(run, backend=remembered, dynamic=False, recompile_limit=LIMIT)
    return torch.compile(run, backend=remembered, dynamic=False)


def measure(count: int) -> dict[str, dict[str, float]]:
    x = torch.randn(4)
    order = [1000 + number for number in range(count)]
    random.Random(0).shuffle(order)
    calls, compile_times = {}, {}
    for side in (STATOR, DYNAMO):
        side.make_cold()
        calls[side.name] = fn = compiled(side.name)
        times = []
        for n in order:
            start = time.process_time()
            fn(x, n)
            times.append(time.process_time() - start)
        compile_times[side.name] = statistics.median(times)
        for n in order:
            fn(x, n)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(BATCHES):
        for name, fn in calls.items():
            start = time.thread_time_ns()
            for _ in range(ROUNDS):
                for n in order:
                    fn(x, n)
            samples[name].append((time.thread_time_ns() - start) / ROUNDS / count)
    return {name: {"call_ns": statistics.median(values), "compile_ms": compile_times[name] * 1e3}
            for name, values in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_entries", description=__doc__)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    figures = {}
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=LIMIT, accumulated_recompile_limit=10 * LIMIT):
        for count in COUNTS:
            figures[count] = found = measure(count)
            ours, theirs = found[STATOR.name], found[DYNAMO.name]
            print(f"{count:3} entries: a call {ours['call_ns']:.0f} ns, torch._dynamo {theirs['call_ns']:.0f} ns "
                  f"({theirs['call_ns'] / ours['call_ns']:.0f}x less); one more entry {ours['compile_ms']:.1f} ms, "
                  f"torch._dynamo {theirs['compile_ms']:.1f} ms")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
