"""How much memory a capture takes at its peak, and keeps: `python -m benchmarks.memory [layers]`.

In: a Llama.  Out: MiB of resident memory above what the process held before `compile` and the first call, at the peak
and after a collection, each side in processes of its own that have compiled another function before. Linux only.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.capture import warm_up
from benchmarks.models import llama
from benchmarks.samples import Sample, turns
from benchmarks.sides import SIDES

ROUNDS = 3


def status(field: str) -> float:
    """MiB, from the kernel."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure(side_name: str, layers: int) -> dict[str, float]:
    torch.set_num_threads(1)
    side = SIDES[side_name]
    warm_up(side)
    model, inputs = llama(layers)
    with torch.no_grad():
        model(*inputs)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = status("VmRSS:")
        compiled = side.compile(model, "eager")
        compiled(*inputs)
        peak = status("VmHWM:")
        gc.collect()
        kept = status("VmRSS:")
    return {"peak": peak - before, "kept": kept - before}


def in_a_process(side_name: str, layers: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", str(layers), side_name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows() -> list[str]:
    """One row of the table."""
    has_model = importlib.util.find_spec("transformers") is not None
    return ["Llama, 32 layers"] if has_model and Path("/proc/self/clear_refs").exists() else []


def compare(layers: int, rounds: int) -> dict[str, dict[str, Sample]]:
    """MiB by side and key, the sides in turns."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    for number in range(rounds):
        for name in turns(list(SIDES), number):
            runs[name].append(in_a_process(name, layers))
    return {name: {key: Sample.of([run[key] for run in found]) for key in ("peak", "kept")}
            for name, found in runs.items()}


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[2], layers)))
        return
    for name, found in compare(layers, ROUNDS).items():
        shown = ", ".join(f"{key} {sample.text(1, 'MiB')}" for key, sample in found.items())
        print(f"Llama, {layers} layers, captured by {name}: {shown}")


if __name__ == "__main__":
    main()
