"""Where capture time goes: `python -m benchmarks.breakdown [llama | unet]` captures a model and prints the parts.

In: a 16-layer Llama, or a UNet.  Out: CPU milliseconds of each part.  They are timed by wrapping the functions that do
them; what is left of the trace is interpretation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import stator
from benchmarks.models import llama, unet
from benchmarks.sides import STATOR
from stator.capture import stages
from stator.graph.record.recorder import Recorder
from stator.interp.replay.layer_replay import Replay

ROUNDS = 5
MODELS: dict[str, Callable[[], Any]] = {"llama": lambda: llama(16), "unet": unet}


class Stopwatch:
    """Seconds spent in wrapped functions, nested calls of the same name counted once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside: set[str] = set()

    def wrap(self, owner: Any, name: str) -> Callable[[], None]:
        original = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if name in self.inside:
                return original(*args, **kwargs)
            self.inside.add(name)
            start = time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start
                self.inside.discard(name)

        setattr(owner, name, timed)
        return lambda: setattr(owner, name, original)


WRAPPED: list[tuple[Any, str]] = [
    (Recorder, "call"), (Recorder, "record"), (Recorder, "add_input"), (stages, "trace"),
    (stages, "emit_residual"), (stages, "compile_graph"), (stages, "checked_program"), (Replay, "attempt"),
]


def measure(model_name: str) -> tuple[float, dict[str, float]]:
    STATOR.make_cold()
    model, inputs = MODELS[model_name]()
    watch = Stopwatch()
    undo = [watch.wrap(owner, name) for owner, name in WRAPPED]
    try:
        with torch.no_grad():
            start = time.process_time()
            stator.compile(model, backend="eager", fullgraph=True)(*inputs)
            return time.process_time() - start, watch.seconds
    finally:
        for each in undo:
            each()


def parts(total: float, seconds: dict[str, float]) -> dict[str, float]:
    call, record, wrap, trace = (seconds[name] for name in ("call", "record", "add_input", "trace"))
    emit, generated, guards = (seconds[name] for name in ("emit_residual", "compile_graph", "checked_program"))
    replayed = seconds.get("attempt", 0.0)
    return {
        "propagation": call - record, "FX nodes": record, "wrapping inputs": wrap, "repeated layers": replayed,
        "interpretation": trace - call - wrap - replayed, "residual program": emit, "generated graph code": generated,
        "guards": guards, "first run and the rest": total - trace - emit - generated - guards,
    }


def main(model_name: str = "llama") -> None:
    torch.set_num_threads(1)
    measure(model_name)
    runs = sorted((measure(model_name) for _ in range(ROUNDS)), key=lambda run: run[0])
    total, seconds = runs[len(runs) // 2]
    title = f"A cold capture of {model_name}: {total * 1e3:.0f} ms (median of {ROUNDS})"
    table = Table(title=title, title_justify="left")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    for name, value in sorted(parts(total, seconds).items(), key=lambda item: -item[1]):
        table.add_row(name, f"{value * 1e3:.0f}", f"{100 * value / total:.0f}%")
    Console(width=100).print(table)


if __name__ == "__main__":
    main(*sys.argv[1:2])
