"""Cost of a call beside its graph: `python -m benchmarks.model_calls [layers]`.

A program is compiled with a backend whose graph returns at once what it returned first, so that what is measured is the
front end alone: binding, guards, the inputs handed over and the result object rebuilt. CPU time, in turns.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.models import llama
from benchmarks.overhead import CASES
from benchmarks.samples import Sample, turns
from benchmarks.sides import DYNAMO, STATOR
from benchmarks.workloads import Program

BATCHES, CALLS = 15, 100
LAYERS = (8, 32, 64)


def programs() -> dict[str, Callable[[], Program]]:
    """One row of the table."""
    found = {name: case.build for name, case in CASES.items()}
    if importlib.util.find_spec("transformers") is not None:
        found |= {f"Llama, {layers} layers": partial(llama, layers) for layers in LAYERS}
    return found


def remembered(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    results: list[Any] = []

    def run(*inputs: Any) -> Any:
        if not results:
            results.append(graph.forward(*inputs))
        return results[0]

    return run


def nanoseconds(call: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    start = time.thread_time_ns()
    for _ in range(CALLS):
        call(*inputs)
    return (time.thread_time_ns() - start) / CALLS


def measure(program: Program, batches: int = BATCHES) -> dict[str, Sample]:
    """Nanoseconds of a call, by side."""
    fn, inputs = program
    with torch.no_grad():
        compiled = {side.name: side.compile(fn, remembered) for side in (STATOR, DYNAMO)}
        for call in compiled.values():
            call(*inputs)
            call(*inputs)
        taken: dict[str, list[float]] = {name: [] for name in compiled}
        for number in range(batches):
            for name, call in turns(list(compiled.items()), number):
                taken[name].append(nanoseconds(call, inputs))
    return {name: Sample.of(values) for name, values in taken.items()}


def main(layers: int) -> None:
    torch.set_num_threads(1)
    found = measure(llama(layers))
    ours, theirs = found[STATOR.name].median / 1e3, found[DYNAMO.name].median / 1e3
    shown = f"stator {ours:.1f} us, torch._dynamo {theirs:.0f} us: {theirs / ours:.1f}x less"
    print(f"Llama, {layers} layers, one call: {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
