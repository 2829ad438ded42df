"""Cold captures of whole models, both sides in turns: `python -m benchmarks.model_captures [rounds]`.

In: Llamas of 8 to 64 layers, BERT, ViT and a UNet, built from small configurations.  Out: milliseconds of CPU time of
each capture with the "eager" backend, medians, and the ratio to torch._dynamo's.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import capture, models
from benchmarks.sides import DYNAMO, SIDES, STATOR
from benchmarks.workloads import Workload

LAYERS = (8, 16, 32, 64)


def workloads() -> list[Workload]:
    def llama(layers: int) -> Callable[[], Any]:
        return lambda: models.llama(layers)

    return [*(Workload(f"Llama, {layers} layers", llama(layers)) for layers in LAYERS),
            Workload("BERT, 12 layers", models.bert), Workload("ViT, 12 layers", models.vit),
            Workload("UNet2DConditionModel", models.unet)]


def main(rounds: int) -> None:
    for each in workloads():
        found: dict[str, list[float]] = {name: [] for name in SIDES}
        for _ in range(rounds):
            for name, side in SIDES.items():
                found[name].append(capture.measure_once(side, each) * 1e3)
        ours, theirs = (statistics.median(found[side.name]) for side in (STATOR, DYNAMO))
        spread = max(found[STATOR.name]) / min(found[STATOR.name])
        print(f"{each.name:24} {ours:7.0f} ms {theirs:7.0f} ms {theirs / ours:6.1f}x   spread {spread:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
