"""Compare train steps of well-known examples with eager, and print how they were captured.

    python -m tests.training.examples --steps 20 --backends eager aot_eager

Compared after each step: the loss, parameters, gradients, optimiser state, buffers and random streams.
"""

from __future__ import annotations

import argparse

from stator import events
from tests.torch_api.side_by_side import Make, compare
from tests.training.example_methods import METHODS
from tests.training.example_networks import NETWORKS

EXAMPLES = [*NETWORKS, *METHODS]
TOLERANCE = {"eager": 0.0, "aot_eager": 1e-5, "inductor": 1e-4}


def print_line(make: Make, steps: int, backend: str) -> bool:
    """Run one example; True where it was captured without a break."""
    try:
        report = compare(make, steps, backend, TOLERANCE[backend])
    except AssertionError as difference:
        print(f"{make.__name__:32} {backend:10} DIFFERS: {' '.join(str(difference).split())[:300]}", flush=True)
        return False
    captured = len([event for event in report.of(events.CaptureFinished) if event.graph is not None])
    causes = "; ".join(dict.fromkeys(cause[:90] for cause in report.causes))
    print(f"{make.__name__:32} {backend:10} {captured:3} graphs, {len(report.causes)} breaks  {causes}", flush=True)
    return not report.causes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backends", nargs="+", default=["eager", "aot_eager"])
    chosen = parser.parse_args()
    makes = [make for make in EXAMPLES if not chosen.names or make.__name__ in chosen.names]
    for backend in chosen.backends:
        whole = [print_line(make, chosen.steps, backend) for make in makes]
        print(f"{backend}: {sum(whole)} of {len(whole)} steps in one graph")


if __name__ == "__main__":
    main()
