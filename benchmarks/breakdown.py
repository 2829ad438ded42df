"""Where capture time goes: `python -m benchmarks.breakdown` captures a 16-layer Llama and prints the parts.

The parts are timed by wrapping the functions that do them; what is left of the trace is interpretation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import stator
from benchmarks.models import llama
from stator import pipeline
from stator.emit import residual
from stator.graph.recorder import Recorder

ROUNDS = 5


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
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
                self.inside.discard(name)

        setattr(owner, name, timed)
        return lambda: setattr(owner, name, original)


WRAPPED: list[tuple[Any, str]] = [
    (Recorder, "call"), (Recorder, "record"), (Recorder, "add_input"), (pipeline, "trace"),
    (pipeline, "emit_residual"), (residual, "make_graph_module"), (pipeline, "checked_program"),
]


def measure() -> tuple[float, dict[str, float]]:
    stator.reset()
    model, inputs = llama(16)
    watch = Stopwatch()
    undo = [watch.wrap(owner, name) for owner, name in WRAPPED]
    try:
        with torch.no_grad():
            start = time.perf_counter()
            stator.compile(model, backend="eager", fullgraph=True)(*inputs)
            return time.perf_counter() - start, watch.seconds
    finally:
        for each in undo:
            each()


def parts(total: float, seconds: dict[str, float]) -> dict[str, float]:
    call, record, wrap, trace = (seconds[name] for name in ("call", "record", "add_input", "trace"))
    emit, generated, guards = (seconds[name] for name in ("emit_residual", "make_graph_module", "checked_program"))
    return {
        "propagation": call - record, "FX nodes": record, "wrapping inputs": wrap,
        "interpretation": trace - call - wrap, "residual program": emit - generated, "generated graph code": generated,
        "guards": guards, "first run and the rest": total - trace - emit - guards,
    }


def main() -> None:
    torch.set_num_threads(1)
    measure()
    runs = sorted((measure() for _ in range(ROUNDS)), key=lambda run: run[0])
    total, seconds = runs[len(runs) // 2]
    title = f"A cold capture of a 16-layer Llama: {total * 1e3:.0f} ms (median of {ROUNDS})"
    table = Table(title=title, title_justify="left")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    for name, value in sorted(parts(total, seconds).items(), key=lambda item: -item[1]):
        table.add_row(name, f"{value * 1e3:.0f}", f"{100 * value / total:.0f}%")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
