"""autograd.Functions whose forward writes to its arguments without mark_dirty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        torch.exp(x, out=x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        ctx.save_for_backward(count)
        return x * count

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (count,) = ctx.saved_tensors
        return grads[0] * count, None


PROGRAMS: dict[str, Callable[..., torch.Tensor]] = {
    "in place": lambda x, count: InPlace.apply(x),
    "another argument": lambda x, count: Counting.apply(x, count) * count,
    "twice": lambda x, count: Counting.apply(x, count) + Counting.apply(x, count),  # what was saved has changed
    "written before": lambda x, count: Counting.apply(x, count.mul_(2)) * count,
    "written later": lambda x, count: (Counting.apply(x, count), count.mul_(2))[0],
    "a view": lambda x, count: Counting.apply(x, count[0]) * count,
}


def outcome(program: Callable[..., torch.Tensor], leaf: bool, scale: float) -> list[object]:
    x, count = torch.full((2, 3), scale, requires_grad=True), torch.full((2, 3), 2.0)
    given = x if leaf else x * 2
    value = program(given, count)
    found: list[object] = [value.tolist(), value.requires_grad, value is given, given.tolist(), count.tolist(),
                           given._version, count._version]
    try:
        value.sum().backward()
    except RuntimeError as error:
        return [*found, str(error)]
    return [*found, None if x.grad is None else x.grad.tolist()]


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, backend: str, leaf: bool) -> None:
    whole = name != "a view" and (backend == "eager" or name not in ("written before", "twice"))
    compiled = stator.compile(PROGRAMS[name], backend=backend, fullgraph=whole)
    for scale in (1.0, 1.0, -2.0):
        assert outcome(compiled, leaf, scale) == outcome(PROGRAMS[name], leaf, scale)
