"""autograd.Functions whose forward is part of the trace: without gradients, marked, with defaults, or raising."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad


class Hands(torch.autograd.Function):
    """Gives back what it got, which is another tensor to the program then."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, scale: float = 3.0, shift: float = 0.5) -> torch.Tensor:
        return x * scale + shift

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.given = len(inputs)
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * ctx.scale * ctx.given, None, None


class Asks(torch.autograd.Function):
    """Inside, gradients are off."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x * (2 if torch.is_grad_enabled() else 5)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * 7


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n: int) -> torch.Tensor:
        if n > 1:
            raise ValueError(f"{n} is too much")
        return x * n

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


class ForwardAlone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3


def writes(x: Any, n: int) -> Any:
    y = Writes.apply(x)
    return y is x, y * 1


def hands(x: Any, n: int) -> Any:
    y = Hands.apply(x)
    return y is x, y * 2


def separate(x: Any, n: int) -> Any:
    return Separate.apply(x), Separate.apply(x, 2.0), Separate.apply(x, float(n), 1.0)


def asks(x: Any, n: int) -> Any:
    return Asks.apply(x), torch.is_grad_enabled(), (x * 2).requires_grad


def raises(x: Any, n: int) -> Any:
    try:
        y = Raises.apply(x, n)
    except ValueError as error:
        y = x * 4
        return str(error), y, torch.is_grad_enabled(), y.requires_grad
    return "", y, torch.is_grad_enabled(), y.requires_grad


def forward_alone(x: Any, n: int) -> Any:
    return ForwardAlone.apply(x), x + 1


def nothing_is_dead(x: Any, n: int) -> Any:
    return torch._functorch.utils.unwrap_dead_wrappers((x, n))[0] * n


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("program", [writes, hands, separate, asks, raises, forward_alone, nothing_is_dead])
def test_equals_eager(program: Any, learns: bool) -> None:
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for grad_mode in (True, False):
        for n in (1, 2, 1):
            outcomes = []
            for run in (program, compiled):
                leaf = torch.tensor([1.0, -2.0], requires_grad=learns)
                with torch.set_grad_enabled(grad_mode):
                    x = leaf * 1
                    results = run(x, n)
                    results = results if isinstance(results, tuple) else (results,)
                shown: list[Any] = [x.tolist()]
                for each in results:
                    if not isinstance(each, torch.Tensor):
                        shown.append(each)
                        continue
                    shown.append((each.tolist(), each.requires_grad))
                    if each.requires_grad and program is not forward_alone:
                        shown.append(torch.autograd.grad(each.sum(), leaf, retain_graph=True)[0].tolist())
                outcomes.append(shown)
            assert outcomes[0] == outcomes[1], (grad_mode, n)


@pytest.mark.parametrize("program", [hands, separate, asks, raises, nothing_is_dead])
def test_whole_without_gradients(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for n in (1, 2):
        got, expected = compiled(torch.ones(2), n), program(torch.ones(2), n)
        assert str(got) == str(expected)
