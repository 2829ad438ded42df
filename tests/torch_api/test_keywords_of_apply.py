"""F.apply(x, factor=6): keyword arguments of an autograd.Function."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator

pytestmark = pytest.mark.skipif(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
                                reason="torch before 2.13 drops keyword arguments of apply")


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float = 1, shift: float = 0) -> torch.Tensor:
        ctx.factor = factor
        ctx.count = len(ctx.needs_input_grad)
        return x.sin() * factor + shift

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (grads[0] * ctx.factor * 3, None, None)[:ctx.count]


class SetUp(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, factor: float = 1, shift: float = 0) -> torch.Tensor:  # type: ignore[override]
        return x.sin() * factor + shift

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.factor, ctx.count = inputs[1] + inputs[2], len(inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (grads[0] * ctx.factor, None, None)[:ctx.count]


CALLS = {
    "one": lambda f, x, n: f.apply(x, factor=n),
    "all": lambda f, x, n: f.apply(shift=n, x=x, factor=2),
    "two": lambda f, x, n: f.apply(x, shift=1, factor=n),
    "behind positions": lambda f, x, n: f.apply(x, 2, shift=n),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("function", [Scaled, SetUp])
@pytest.mark.parametrize("needs_grad", [True, False])
def test_values_and_gradients(function: Any, name: str, needs_grad: bool) -> None:
    compiled = stator.compile(CALLS[name], backend="aot_eager", fullgraph=True)
    for n in (2, 2, 5):
        found = []
        for call in (CALLS[name], compiled):
            x = torch.tensor([0.5, 2.0], requires_grad=needs_grad)
            y = call(function, x, n)
            if needs_grad:
                y.sum().backward()
            found.append((y.tolist(), y.requires_grad, None if x.grad is None else x.grad.tolist()))
        assert found[0] == found[1]


@pytest.mark.parametrize("wrong", [lambda x: Scaled.apply(x, shift=3), lambda x: Scaled.apply(x, other=3)])
def test_keywords_that_torch_refuses(wrong: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    for call in (wrong, stator.compile(wrong, backend="eager")):
        with pytest.raises(TypeError, match="forward\\(\\)"):
            call(x)
