"""Find guards that move.   python -m stator stability [--json] [--calls N] MODEL

In: a model as `module:factory` or `file.py:factory`.  Out: whether equal calls compile again, and, for each dimension
of each tensor argument, how many captures the sizes n, n+1, n+2 and n+3 take, and which guards failed.
Exit codes: 0 each dimension takes at most one more capture; 1 some take more, or equal calls compile again; 3 the model
fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

import stator
from stator import events
from stator.cli.census import FAILED
from stator.cli.recorded_run import Model, load_model
from stator.report.text import render

UNSTABLE = 1
STEPS = (1, 2, 3)


def grown(tensor: torch.Tensor, dim: int, by: int) -> torch.Tensor:
    """A tensor with more items in one dimension: the last one again."""
    last = tensor.detach().narrow(dim, tensor.shape[dim] - 1, 1)
    return torch.cat([tensor.detach(), *[last] * by], dim).requires_grad_(tensor.requires_grad)


def causes(log: list[events.Event]) -> list[str]:
    return [render(event).partition("\n")[0] for event in log if isinstance(event, (events.Recompile,
                                                                                    events.EagerFallback))]


def recorded(call: Callable[[], object]) -> list[events.Event]:
    with events.record() as log:
        call()
    return log


def repeat(model: Model, calls: int) -> list[str]:
    """Causes of recompiles in equal calls."""
    compiled = stator.compile(model.fn, backend="eager", isolate_recompiles=True)
    return [cause for _ in range(calls) for cause in causes(recorded(lambda: model.call(compiled)))]


def vary(model: Model, name: int | str, dim: int) -> dict[str, Any]:
    """Change one dimension of one argument, and nothing else."""
    given = model.args[name] if isinstance(name, int) else model.kwargs[name]

    def with_size(by: int) -> Model:
        changed = grown(given, dim, by) if by else given
        args = tuple(changed if index == name else each for index, each in enumerate(model.args))
        return Model(model.name, model.fn, args, {**model.kwargs, **({name: changed} if isinstance(name, str) else {})})

    row: dict[str, Any] = {"argument": name, "dim": dim, "captures": 0, "moved": [], "eager_error": ""}
    try:
        for by in STEPS:
            with_size(by).call()
    except Exception as error:
        row["eager_error"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return row
    compiled = stator.compile(model.fn, backend="eager", isolate_recompiles=True)
    with_size(0).call(compiled)
    for by in STEPS:
        log = recorded(lambda by=by: with_size(by).call(compiled))  # type: ignore[misc]
        row["captures"] += any(isinstance(event, events.CaptureFinished) for event in log)
        row["moved"] += causes(log)
    return row


def examine(model: Model, calls: int) -> dict[str, Any]:
    arguments: list[tuple[int | str, Any]] = [*enumerate(model.args), *model.kwargs.items()]
    return {"model": model.name, "calls": calls, "repeated": repeat(model, calls),
            "dimensions": [vary(model, name, dim) for name, value in arguments if isinstance(value, torch.Tensor)
                           for dim in range(value.dim()) if value.shape[dim]]}


def is_stable(found: dict[str, Any]) -> bool:
    return not found["repeated"] and all(row["captures"] <= 1 for row in found["dimensions"])


def text_of(found: dict[str, Any]) -> str:
    again = found["repeated"]
    lines = [f"{found['calls']} equal calls: {'one capture' if not again else f'{len(again)} recompiles'}",
             *[f"  {cause}" for cause in again]]
    for row in found["dimensions"]:
        title = f"argument {row['argument']}, dimension {row['dim']}"
        if row["eager_error"]:
            lines.append(f"{title}: cannot vary alone, eager raises {row['eager_error']}")
            continue
        lines.append(f"{title}: {row['captures']} more captures for {len(STEPS)} more sizes"
                     f"{'' if row['captures'] <= 1 else ', unstable'}")
        lines += [f"  {cause}" for cause in row["moved"]]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator stability", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--calls", type=int, default=5, help="how many equal calls (default: 5)")
    parser.add_argument("model", help="module:factory or file.py:factory")
    chosen = parser.parse_args(arguments)
    try:
        found = examine(load_model(chosen.model), chosen.calls)
    except Exception as error:
        print(f"stator stability: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(FAILED)
    print(json.dumps(found, indent=1) if chosen.json else text_of(found))
    sys.exit(0 if is_stable(found) else UNSTABLE)
