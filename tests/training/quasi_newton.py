"""Graphs and times of a step of LBFGS, beside eager and torch.compile.

    python -m tests.training.quasi_newton
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import stator

CALLS = 10


def make_step(history: int, search: str | None) -> Callable[[Any, Any], Any]:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(6)])
    optimiser = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=20, history_size=history, line_search_fn=search)

    def step(x: Any, y: Any) -> Any:
        def closure() -> Any:
            optimiser.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        return optimiser.step(closure)
    return step


def main() -> None:
    x, y = torch.randn(64, 32), torch.randn(64, 32) * 0.1
    for search in (None, "strong_wolfe"):
        for history in (10, 100):
            for name, compiler in (("eager", None), ("torch.compile", torch.compile), ("Stator", stator.compile)):
                graphs: list[Any] = []

                def backend(graph: Any, _: object, kept: list[Any] = graphs) -> Any:
                    kept.append(graph)
                    return graph.forward
                step = make_step(history, search)
                call = step if compiler is None else compiler(step, backend=backend)
                times = []
                for _ in range(CALLS):
                    start = time.perf_counter()
                    loss = call(x, y)
                    times.append(time.perf_counter() - start)
                print(f"line search {search}, history {history:3}, {name:13}: {len(graphs)} graphs, first call "
                      f"{times[0]:.2f} s, last {times[-1] * 1e3:.0f} ms, loss {loss.detach():.9f}", flush=True)


if __name__ == "__main__":
    main()
