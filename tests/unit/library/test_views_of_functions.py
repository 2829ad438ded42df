"""Views that an autograd.Function returns: autograd refuses writes to them, in the graph and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


class Reshaped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x.view(2, 3)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.reshape(6) * 3


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 3


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return x[:3], x[3:]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return torch.cat(grads) * 3


class First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return x[0]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.new_full((6,), 3.0)


def written_inside(x: torch.Tensor) -> Any:
    y = x * 2
    view = Reshaped.apply(y)
    try:
        view.add_(1)
    except RuntimeError as error:
        return str(error)
    return view


def written_after_a_break(x: torch.Tensor) -> Any:
    view = Reshaped.apply(x * 2)
    stator.graph_break()
    view.add_(1)
    return view


def beside_its_base(x: torch.Tensor) -> Any:
    y = x * 2
    return Reshaped.apply(y), y


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "written inside": written_inside,
    "written after a break": written_after_a_break,
    "beside its base": beside_its_base,
    "returned": lambda x: Reshaped.apply(x * 2),
    "a view of it": lambda x: Reshaped.apply(x * 2).t(),
    "the input": lambda x: Same.apply(x * 2),
    "two views": lambda x: Halves.apply(x * 2),
    "an item": lambda x: First.apply(x * 2),
    "of a part of a result": lambda x: First.apply((x * 2).split(6)[0]),
    "used on": lambda x: Reshaped.apply(x * 2) * 2,
}


def outcome(program: Callable[[torch.Tensor], Any], requires_grad: bool) -> list[Any]:
    """The gradient, and what a write to the first result gives."""
    seen: list[Any] = []
    x = torch.arange(6.0, requires_grad=requires_grad)
    try:
        found = program(x)
        first = found if isinstance(found, torch.Tensor) or isinstance(found, str) else found[0]
        if isinstance(first, str):
            return [first]
        if requires_grad:
            (grad,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
            seen.append(grad.tolist())
        seen.append(first.add_(1).tolist())
    except RuntimeError as error:
        seen.append(str(error))
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_writes_are_refused(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = stator.compile(program, backend=backend)
    for requires_grad in (True, True, False, True):
        assert outcome(compiled, requires_grad) == outcome(program, requires_grad)
