"""Cost of recording in the steady state.   python -m benchmarks.report_overhead [--rounds N] [--backend NAME]

In: a model of twelve layers, called with and without the recording of `python -m stator report`, in turn.
Out: the median microseconds of CPU time of a call on each side, their ratio (of the fastest rounds, of medians, and the
median of ratios of neighbouring rounds), and the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch
from torch import nn

import stator
from stator.cli.recorded_run import watched


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def round_of(fn: Any, x: torch.Tensor, calls: int) -> float:
    began = time.thread_time()
    for _ in range(calls):
        fn(x)
    return (time.thread_time() - began) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--backend", default="eager")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Layer(64) for _ in range(12)]).eval(), torch.randn(8, 64)
    with torch.no_grad():
        plain = stator.compile(model, backend=chosen.backend, isolate_recompiles=True)
        plain(x)
        with watched() as found:
            recorded = stator.compile(model, backend=chosen.backend, isolate_recompiles=True)
            recorded(x)
            sides: dict[str, list[float]] = {"plain": [], "recorded": []}
            for number in range(chosen.rounds):
                for side in sorted(sides, reverse=bool(number % 2)):  # each side is first in every second round
                    sides[side].append(round_of({"plain": plain, "recorded": recorded}[side], x, chosen.calls))
    if found.error is not None:
        raise found.error
    for side, times in sides.items():
        print(f"{side:9} median {statistics.median(times):.1f} us, least {min(times):.1f} us a call")
    pairs = [recorded / plain for plain, recorded in zip(sides["plain"], sides["recorded"], strict=True)]
    print(f"recorded against plain: {min(sides['recorded']) / min(sides['plain']):.3f} (least), "
          f"{statistics.median(sides['recorded']) / statistics.median(sides['plain']):.3f} (median), "
          f"{statistics.median(pairs):.3f} (neighbours); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
