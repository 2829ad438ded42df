"""Calls and captures against the number of layers, drawn: `python -m benchmarks.layers`.

In: Llamas of 4 to 64 layers.  Out: out/layers.json, docs/layers-call.svg and docs/layers-capture.svg: microseconds of a
call whose graph costs nothing, and milliseconds of a cold capture, for both sides. CPU time, in turns, medians.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import torch

from benchmarks import capture
from benchmarks.model_calls import measure
from benchmarks.models import llama
from benchmarks.sides import DYNAMO, SIDES, STATOR
from benchmarks.workloads import Workload

LAYERS = (4, 8, 16, 32, 64)
CAPTURES = 3
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 360, 70, 50
COLOURS = {STATOR.name: "#2f6f9f", DYNAMO.name: "#b5651d"}


def capture_times(layers: int) -> dict[str, float]:
    each = Workload(f"Llama, {layers} layers", lambda: llama(layers))
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(CAPTURES):
        for name, side in SIDES.items():
            found[name].append(capture.measure_once(side, each) * 1e3)
    return {name: statistics.median(values) for name, values in found.items()}


def draw(title: str, unit: str, curves: dict[str, list[float]]) -> str:
    """A small line chart as SVG: layers to the right, the quantity upwards, both from zero."""
    top = max(max(values) for values in curves.values())
    x_of = [LEFT + layers / LAYERS[-1] * (WIDTH - LEFT - 120) for layers in LAYERS]

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 40)

    parts = [f'<text x="{LEFT}" y="22" font-size="15">{title}</text>']
    for fraction in (0, 0.25, 0.5, 0.75, 1):
        y = y_of(top * fraction)
        parts.append(f'<line x1="{LEFT}" y1="{y:.0f}" x2="{WIDTH - 115}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{top * fraction:,.0f}</text>')
    for layers, x in zip(LAYERS, x_of, strict=True):
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{layers}</text>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">layers ({unit} upwards)</text>')
    for name, values in curves.items():
        points = [(x, y_of(value)) for x, value in zip(x_of, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        colour = COLOURS[name]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" fill="{colour}">{name}</text>')
    body = "\n  ".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12">\n  <rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n  {body}\n</svg>\n')


def main() -> None:
    torch.set_num_threads(1)
    calls: dict[str, list[float]] = {name: [] for name in SIDES}
    captures: dict[str, list[float]] = {name: [] for name in SIDES}
    for side in SIDES.values():
        capture.warm_up(side)
    for layers in LAYERS:
        for name, sample in measure(llama(layers)).items():
            calls[name].append(sample.median / 1e3)
        for name, value in capture_times(layers).items():
            captures[name].append(value)
        shown = ", ".join(f"{name} {calls[name][-1]:.1f} us a call, {captures[name][-1]:.0f} ms a capture"
                          for name in SIDES)
        print(f"{layers} layers: {shown}", flush=True)
    Path("out").mkdir(exist_ok=True)
    figures = {"layers": LAYERS, "call_us": calls, "capture_ms": captures}
    Path("out/layers.json").write_text(json.dumps(figures, indent=2) + "\n")
    Path("docs/layers-call.svg").write_text(draw("Llama: a compiled call beside its graph", "us", calls))
    Path("docs/layers-capture.svg").write_text(draw("Llama: a cold capture, backend eager", "ms", captures))


if __name__ == "__main__":
    main()
