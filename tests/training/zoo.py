"""Train steps of the models of a zoo, beside eager.

    python -m tests.training.zoo --zoo ../shared/zoo [--backend eager] [--names A,B]

In: a folder with `zoo.py` and `dev.txt`.  Out: a JSON line for each model: graphs, causes of breaks, differences of
losses, parameters, gradients and buffers after two steps.  Each model has a process of its own, forked after the
libraries are loaded.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from pathlib import Path
from typing import Any

import torch

import stator
from stator import events
from tests.comparison import CLOSE, EXACT, Snapshotter, differences, tensors_in
from tests.comparison.call_outcome import seed_streams
from tests.zoo_rows import rows


def trained(zoo: Any, name: str, backend: str | None, steps: int) -> Any:
    """Losses of some steps of momentum SGD, and the state afterwards."""
    seed_streams(0)
    case = zoo.build(name)
    model, inputs = case.model.train(), case.inputs
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> Any:
        optimiser.zero_grad()
        learning = [each for each in outputs(model(**inputs)) if each.requires_grad and each.is_floating_point()]
        loss = sum(each.float().pow(2).mean() for each in learning)
        loss.backward()
        optimiser.step()
        return loss

    run = step if backend is None else stator.compile(step, backend=backend)
    losses = []
    for number in range(steps):
        seed_streams(number)
        losses.append(run().detach())
    return (losses, {each: (value.detach(), value.grad) for each, value in model.named_parameters()},
            dict(model.named_buffers()))


def outputs(value: Any) -> list[torch.Tensor]:
    """Tensors in containers of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [each for part in parts for each in outputs(part)]


def row_of(zoo: Any, name: str, options: argparse.Namespace) -> dict[str, Any]:
    signal.alarm(options.seconds)
    started = time.process_time()
    expected = Snapshotter(__name__).take(trained(zoo, name, None, options.steps), "steps")
    with events.record() as log:
        found = trained(zoo, name, options.backend, options.steps)
    taken = Snapshotter(__name__).take(found, "steps")
    differing, verdict = list(differences(expected, taken, "steps", EXACT.tolerance)), "equal"
    if differing:  # models choose other kernels where torch.compiler.is_compiling()
        differing, verdict = list(differences(expected, taken, "steps", CLOSE.tolerance)), "close"
    breaks = [f"{each.cause} at {Path(each.filename or '').name}:{each.line}" for each in log
              if isinstance(each, events.GraphBreak)]
    fallbacks = [str(each) for each in log if isinstance(each, events.EagerFallback)]
    return {"tensors": len(tensors_in(found)), "graphs": sum(isinstance(each, events.CaptureFinished) for each in log),
            "breaks": list(dict.fromkeys(each[:200] for each in breaks + fallbacks)),
            "verdict": "differs" if differing else verdict, "differences": [each[:300] for each in differing[:3]],
            "seconds": round(time.process_time() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--names", default="")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=600, help="for one model")
    options = parser.parse_args()
    whole = equal = count = 0
    for row in rows(options.zoo, options.names, lambda zoo, name: row_of(zoo, name, options)):
        count += 1
        whole += row.get("breaks") == [] and row["graphs"] > 0
        equal += row.get("verdict") in ("equal", "close")
        print(json.dumps(row), flush=True)
    print(f"{whole} of {count} steps captured whole, {equal} equal or close to eager")


if __name__ == "__main__":
    main()
