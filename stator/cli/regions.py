"""Compile whole and in pieces.   python -m stator regions [--json] [--backend NAME] [--calls N] MODEL

In: a model as `module:factory` or `file.py:factory`.  Out: seconds of the first call and of a call in the steady state,
whole and in pieces, and the pieces.  Exit codes: 0; 3 where the model fails.

Both run in this process, whole first; Inductor's caches on disk serve both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import torch

import stator
from stator import events
from stator.cli.census import FAILED
from stator.cli.recorded_run import Model, load_model
from stator.report.text import render

SIDES = {"whole": "off", "pieces": "auto"}


def measure(model: Model, backend: str, regions: str, calls: int) -> dict[str, Any]:
    stator.reset()
    compiled = stator.compile(model.fn, backend=backend, options={"regions": regions}, isolate_recompiles=True)
    with events.record() as log:
        began = time.perf_counter()
        model.call(compiled)
        first = time.perf_counter() - began
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        model.call(compiled)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return {"first_call": first, "steady": statistics.median(times),
            "pieces": [render(event) for event in log if isinstance(event, (events.GraphCut, events.GraphKeptWhole))]}


def text_of(found: dict[str, Any]) -> str:
    lines = [f"{side:7} first call {row['first_call']:.2f} s, then {row['steady'] * 1e3:.3f} ms a call"
             for side, row in found["sides"].items()]
    whole, pieces = (found["sides"][side] for side in SIDES)
    lines.append(f"pieces against whole: first call {pieces['first_call'] / whole['first_call']:.2f}, "
                 f"steady state {pieces['steady'] / whole['steady']:.2f}")
    return "\n".join([*lines, *pieces["pieces"]])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator regions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--backend", default="inductor", help="(default: %(default)s)")
    parser.add_argument("--calls", type=int, default=20, help="calls of the steady state (default: 20)")
    parser.add_argument("model", help="module:factory or file.py:factory")
    chosen = parser.parse_args(arguments)
    try:
        model = load_model(chosen.model)
        found: dict[str, Any] = {"model": chosen.model, "backend": chosen.backend, "sides": {
            side: measure(model, chosen.backend, regions, chosen.calls) for side, regions in SIDES.items()}}
    except Exception as error:
        print(f"stator regions: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(FAILED)
    print(json.dumps(found, indent=1) if chosen.json else text_of(found))
