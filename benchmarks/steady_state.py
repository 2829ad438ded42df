"""Time of a call that Inductor has compiled: `python -m benchmarks.steady_state [BERT ViT UNet Llama]`

Both sides compile the same small model with backend "inductor", on the CPU, in inference; the results are compared
with eager's, and then calls are timed in turns. CPU time, one thread. The kernels are Inductor's on both sides: a ratio
below one would mean that the front end hands it a worse graph, or adds more to each call.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.models import bert, llama, unet, vit
from benchmarks.samples import turns
from benchmarks.sides import DYNAMO, STATOR

MODELS: dict[str, Callable[[], Any]] = {"BERT": bert, "ViT": vit, "UNet": unet, "Llama": partial(llama, 4)}
BATCHES, CALLS = 21, 20


def tensors(result: Any) -> list[torch.Tensor]:
    return [value for value in (result.values() if isinstance(result, dict) else result)
            if isinstance(value, torch.Tensor)]


def milliseconds(call: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        call(*inputs)
    return (time.process_time() - start) / CALLS * 1e3


def measure(name: str) -> str:
    model, inputs = MODELS[name]()
    with torch.no_grad():
        expected = tensors(model(*inputs))
        compiled = {}
        for side in (STATOR, DYNAMO):
            side.make_cold()
            call = compiled[side.name] = side.compile(model, "inductor")
            torch.testing.assert_close(tensors(call(*inputs)), expected, rtol=1e-3, atol=1e-4)
            call(*inputs)
        samples: dict[str, list[float]] = {side: [] for side in compiled}
        for number in range(BATCHES):
            for name_of_side, call in turns(list(compiled.items()), number):
                samples[name_of_side].append(milliseconds(call, inputs))
        eager = statistics.median(milliseconds(model, inputs) for _ in range(5))
    ours, theirs = (statistics.median(samples[side.name]) for side in (STATOR, DYNAMO))
    each = [b / a for a, b in zip(samples[STATOR.name], samples[DYNAMO.name], strict=True)]
    low, _, high = statistics.quantiles(each, n=4)
    return (f"{name:6} stator {ours:.3f} ms, torch.compile {theirs:.3f} ms, eager {eager:.3f} ms: "
            f"{theirs / ours:.2f}x (quartiles {low:.2f}-{high:.2f})")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or MODELS:
        print(measure(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
