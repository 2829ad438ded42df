"""torch.autograd.Function: inlined where no gradient flows, one node with the user's backward where one does."""

from __future__ import annotations

import enum
import itertools
from typing import Any

import numpy
import pytest
import torch

import stator


class Cubed(torch.autograd.Function):
    """Its backward is not the derivative of its forward: only the real backward gives its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 11 * x * ctx.k, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 7


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, y: float = 2.0) -> Any:
        return x + y, x.argmax()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.y = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        return grad * ctx.y, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 5


CALLS = [0]


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 3


def between(x: torch.Tensor) -> torch.Tensor:
    return Cubed.apply(x.sin(), 3) + 1


def whole(x: torch.Tensor) -> torch.Tensor:
    return Same.apply(x)


def pair(x: torch.Tensor) -> Any:
    return WithSetup.apply(x * 2)


def dirty(x: torch.Tensor) -> torch.Tensor:
    return InPlace.apply(x * 1.5)


def of_parts(x: torch.Tensor) -> Any:
    first, second = x.chunk(3)[:2]
    return Cubed.apply(first, 2) + second, Cubed.apply(second, 1)


def observe(fn: Any, grad: bool) -> list[Any]:
    """Values, whether they carry a gradient, whether the input came back, and the input's gradient."""
    torch.manual_seed(0)
    seen: list[Any] = []
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        with torch.set_grad_enabled(grad):
            result = fn(x)
        parts = result if isinstance(result, tuple) else (result,)
        seen += [(p.detach().tolist(), p.requires_grad, p is x) for p in parts]
        if grad:
            sum(p.sum() for p in parts if p.requires_grad).backward()
            seen.append(x.grad.tolist())
    return seen


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fn", [between, whole, pair, dirty, of_parts])
def test_same_as_eager(fn: Any, grad: bool) -> None:
    assert observe(stator.compile(fn, backend="eager", fullgraph=True), grad) == observe(fn, grad)


def test_the_backward_reaches_aot_autograd() -> None:
    assert observe(stator.compile(between, backend="aot_eager", fullgraph=True), True) == observe(between, True)


def test_a_forward_with_effects_breaks_where_gradients_flow() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return Counted.apply(x)

    x, before = torch.ones(2, requires_grad=True), CALLS[0]
    with pytest.raises(stator.Unsupported, match="SB016"):
        stator.compile(fn, backend="eager", fullgraph=True)(x)
    assert CALLS[0] == before
    with torch.no_grad():
        compiled = stator.compile(fn, backend="eager", fullgraph=True)
        assert compiled(x).tolist() == [2.0, 2.0]
        assert compiled(x).tolist() == [2.0, 2.0]
    assert CALLS[0] == before + 2


def test_a_grad_fn_is_called_after_the_function() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return Cubed.apply(x, 2)

    x = torch.ones(2, requires_grad=True)
    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        made, expected = compiled(x).grad_fn, program(x).grad_fn
        assert made is not None and expected is not None
        assert type(made).__name__ == type(expected).__name__ == "CubedBackward"


class Way(enum.Enum):
    UP = 1
    DOWN = 2


class Told(torch.autograd.Function):
    """Its gradient depends on what is no tensor; what it returns shares memory with its argument."""

    @staticmethod
    def forward(ctx: Any, way: Way, x: torch.Tensor, scale: Any, kind: type) -> torch.Tensor:
        ctx.way, ctx.scale, ctx.kind = way, scale, kind
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return None, ctx.scale(grad) * ctx.kind(2.5) * (1 if ctx.way is Way.UP else -1), None, None


def doubled(x: Any) -> Any:
    return x * 2


def tripled(x: Any) -> Any:
    return x * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_members_of_enumerations_functions_and_classes_are_bound(backend: str) -> None:
    def program(x: Any, way: Any, scale: Any, kind: Any) -> Any:
        return Told.apply(way, x, scale, kind) * 3

    compiled = stator.compile(program, backend=backend, fullgraph=True)
    for way, scale, kind in itertools.product(Way, (doubled, tripled), (int, float)):
        seen = []
        for function in (program, compiled):
            x = torch.ones(3, requires_grad=True)
            out = function(x, way, scale, kind)
            out.sum().backward()
            seen.append((out.tolist(), x.grad.tolist()))  # type: ignore[union-attr]
        assert seen[1] == seen[0]


class Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, flag: Any) -> Any:
        ctx.flag = flag
        return x * 2 if flag else x * 3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad * (5 if ctx.flag else 7), None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_boolean_of_numpy_is_an_argument(backend: str) -> None:
    def f(x: Any, flag: Any) -> Any:
        return Chosen.apply(x.sin(), flag).cos()

    compiled = stator.compile(f, backend=backend, fullgraph=True)
    for flag in (numpy.bool_(True), numpy.bool_(False), numpy.bool_(True)):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        result, expected = compiled(x, flag), f(y, flag)
        result.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close((result, x.grad), (expected, y.grad))


class OldSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        x, = ctx.no_such_tensors
        return grad * x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_that_raises_is_run_by_autograd(backend: str) -> None:
    def f(x: Any) -> Any:
        return OldSwish.apply(x.sin()) + 1

    compiled = stator.compile(f, backend=backend, fullgraph=True)
    for scale in (1.0, 2.0):
        x = (torch.arange(3.0) * scale).requires_grad_()
        result = compiled(x)
        torch.testing.assert_close(result, f(x))
        with pytest.raises(AttributeError, match="no_such_tensors"):
            result.sum().backward()


class Raised(torch.autograd.Function):
    """It writes to its argument, and does not say so (`mark_dirty`)."""

    @staticmethod
    def forward(ctx: Any, x: Any, offset: Any) -> Any:
        x.add_(1)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad * 3, None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_write_in_a_node_with_a_bound_argument(backend: str) -> None:
    """The graph of a compiler is cut behind the node, whose result is an input of the next piece."""
    def f(x: Any) -> Any:
        y = x * 2
        z = Raised.apply(y, Raised)
        return z + y

    compiled = stator.compile(f, backend=backend, options={"strict": True})
    for scale in (1.0, 2.0):
        x, y = [(torch.arange(3.0) * scale).requires_grad_() for _ in range(2)]
        result, expected = compiled(x), f(y)
        result.sum().backward(), expected.sum().backward()
        torch.testing.assert_close((result, x.grad), (expected, y.grad))
