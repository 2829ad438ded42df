"""Compare a branch on a tensor that breaks with the same branch captured as torch.cond.

In: two programs with branches, and backends.  Out: microseconds of CPU for one call, with the break and with the
operator, and their ratio (decision 0019).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import stator

CALLS, ROUNDS = 200, 7


def clamp(x: torch.Tensor) -> torch.Tensor:
    h = x * 2
    if not torch.isfinite(h).all():
        h = torch.clamp(h, -1, 1)
    return h + 1


def skip(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        if x.sum() < 0:
            continue
        x = x * 1.01
    return x


def microseconds(program: Callable[..., Any], backend: str, capture: bool) -> float:
    stator.reset()
    compiled = stator.compile(program, backend=backend, options={"capture_control_flow": capture})
    x = torch.ones(64, 64)
    best = float("inf")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), program(x))
        for _ in range(ROUNDS):
            started = time.process_time()
            for _ in range(CALLS):
                compiled(x)
            best = min(best, time.process_time() - started)
    return best / CALLS * 1e6


def main() -> None:
    for program in (clamp, skip):
        for backend in sys.argv[1:] or ("eager", "aot_eager", "inductor"):
            broken, captured = (microseconds(program, backend, capture) for capture in (False, True))
            print(f"{program.__name__:6} {backend:10} break {broken:6.1f} us, cond {captured:6.1f} us, "
                  f"ratio {captured / broken:.2f}")


if __name__ == "__main__":
    main()
