"""Programs by name.   @program("peft")  ->  PROGRAMS["lora"], run where peft is installed"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Compile = Callable[[Any], Any]


class Program(NamedTuple):
    name: str
    library: str
    run: Callable[[Compile], Any]


PROGRAMS: dict[str, Program] = {}


def program(library: str) -> Callable[[Callable[[Compile], Any]], Callable[[Compile], Any]]:
    """Register a function of `compile` that returns the values to compare."""

    def register(run: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
        PROGRAMS[run.__name__] = Program(run.__name__, library, run)
        return run

    return register


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(rows: int, length: int, most: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, most, (rows, length), generator=torch.Generator().manual_seed(seed))


def trained(
    model: torch.nn.Module, step: Callable[[], torch.Tensor], count: int = 3, lr: float = 0.01
) -> list[Any]:
    """Losses of a few steps, and the parameters behind them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [losses, [p.detach().clone() for p in model.parameters()]]
