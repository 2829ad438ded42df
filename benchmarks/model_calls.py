"""What a call of a whole model costs beside its graph: `python -m benchmarks.model_calls [layers]`.

A Llama is compiled with a backend whose graph returns at once what it returned first, so that what is measured is the
front end alone: binding, guards, the inputs handed over and the result object rebuilt. CPU time, in turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.models import llama
from benchmarks.sides import DYNAMO, STATOR

BATCHES, CALLS = 15, 100


def remembered(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    results: list[Any] = []

    def run(*inputs: Any) -> Any:
        if not results:
            results.append(graph.forward(*inputs))
        return results[0]

    return run


def microseconds(call: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        call(*inputs)
    return (time.process_time() - start) / CALLS * 1e6


def measure(layers: int) -> dict[str, float]:
    """Microseconds of a call, by side."""
    model, inputs = llama(layers)
    with torch.no_grad():
        compiled = {side.name: side.compile(model, remembered) for side in (STATOR, DYNAMO)}
        for call in compiled.values():
            call(*inputs)
            call(*inputs)
        samples: dict[str, list[float]] = {name: [] for name in compiled}
        for _ in range(BATCHES):
            for name, call in compiled.items():
                samples[name].append(microseconds(call, inputs))
    return {name: statistics.median(values) for name, values in samples.items()}


def main(layers: int) -> None:
    torch.set_num_threads(1)
    found = measure(layers)
    ours, theirs = found[STATOR.name], found[DYNAMO.name]
    shown = f"stator {ours:.1f} us, torch._dynamo {theirs:.0f} us: {theirs / ours:.1f}x less"
    print(f"Llama, {layers} layers, one call: {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 32)
