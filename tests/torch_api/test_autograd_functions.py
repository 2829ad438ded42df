"""torch.autograd.Function inside captured code: values, gradients, what backward does besides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from tests.torch_api.beside_eager import BACKENDS, check, values


class Scaled(torch.autograd.Function):
    """With objects among its arguments, and attributes of ctx."""

    @staticmethod
    def forward(ctx, layer, config, x):
        ctx.layer, ctx.config, ctx.shape = layer, config, x.shape
        ctx.doubled = x * 2
        ctx.save_for_backward(x)
        return F.linear(x, layer.weight) * config["k"]

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return None, None, (grad @ ctx.layer.weight * ctx.config["k"] + ctx.doubled * x).view(ctx.shape)


class Split(torch.autograd.Function):
    """Set up apart, with a constant result, results that are no tensors, and gradients only where they are needed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, w, keep=2):
        return x * w, None, x.argmax(-1), keep

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, grad, *others):
        x, w = ctx.saved_tensors
        assert others[0] is None and others[1].dtype == torch.int64 and others[2] is None
        return (grad * w if ctx.needs_input_grad[0] else None), (grad * x if ctx.needs_input_grad[1] else None), None


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        made = x.exp()
        ctx.save_for_backward(made)
        return made

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Passing(torch.autograd.Function):
    """Gives back what it was given."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


def objects(log):
    layer, config = nn.Linear(4, 4), {"k": 3}
    return lambda x: Scaled.apply(layer, config, x * 2).sum(), values()


def split(log):
    def program(x, w):
        made, nothing, best, keep = Split.apply(x, w)
        return made.sum() * keep, nothing, best, best.requires_grad
    x, w = values(7, (3, 4), (3, 4))
    return program, [x, w.detach()]


def once(log):
    return lambda x: Once.apply(Once.apply(x)).sum(), values()


def closure(log):
    outer = torch.full((4,), 3.0)

    class Local(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * outer

        @staticmethod
        def backward(ctx, grad):
            return grad * outer * 2

    return lambda x: Local.apply(x).sum(), values()


def in_place(log):
    def program(x):
        y = x * 1
        InPlace.apply(y)
        return y.sum()
    return program, values()


def passing(log):
    return lambda x: Passing.apply(x * 2).sum(), values()


def under_grad(log):
    return lambda x: torch.func.vmap(torch.func.grad(lambda y: Split.apply(y, y.detach())[0].sum()))(x), values()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [objects, split, once, closure, in_place, passing, under_grad])
def test_captured(make, backend):
    check(make, backend)


def effects(log):
    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            log.append("backward")
            return grad * 2

    return lambda x: Noting.apply(x).sum(), values()


@pytest.mark.parametrize("backend", BACKENDS)
def test_effects_of_backward_break(backend):
    check(effects, backend, breaks="SB016")


def test_double_backward():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0]

    def second(function):
        x, = values()
        first, = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    def program(x):
        return Square.apply(Square.apply(x))

    assert torch.allclose(second(stator.compile(program, backend="eager", fullgraph=True)), second(program))


@pytest.mark.parametrize("factors", [(2, 5, 6), (2.0, 5.5, 6.5)])
def test_what_backward_reads_is_guarded(factors):
    config = {"k": factors[0]}

    class Configured(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * config["k"]

    compiled = stator.compile(lambda x: Configured.apply(x), backend="eager", fullgraph=True)
    for factor in factors:
        config["k"] = factor
        x, = values()
        compiled(x).sum().backward()
        assert torch.equal(x.grad, torch.full((3, 4), float(factor)))


class Asking(torch.autograd.Function):
    """Tells the grad mode that it is called in."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2 if torch.is_grad_enabled() else x * 3

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * x * (5 if torch.is_grad_enabled() else 7)


def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * (2 if torch.is_grad_enabled() else 3))
    return y


@pytest.mark.parametrize("fn", [Asking.apply, hooked])
def test_what_autograd_calls_is_called_without_grad_mode(fn):
    seen = []
    for subject in (fn, stator.compile(lambda x: fn(x), backend="eager")):
        x = torch.ones(2, requires_grad=True)
        y = subject(x)
        y.sum().backward()
        seen.append((y.tolist(), x.grad.tolist()))
    assert seen[0] == seen[1]


def test_a_gradient_through_a_function_is_captured():
    def program(x):
        return torch.autograd.grad(Asking.apply(x).sum(), x)

    x = torch.ones(2, requires_grad=True)
    assert str(stator.compile(program, backend="eager", fullgraph=True)(x)) == str(program(x))


class FailsLater(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("in backward")


def test_what_backward_raises_is_raised_by_backward():
    def program(x):
        try:
            return FailsLater.apply(x) + 1
        except ValueError:
            return x

    for _ in range(2):
        y = stator.compile(program, backend="eager")(torch.ones(2, requires_grad=True))
        assert y.tolist() == [3.0, 3.0]
        with pytest.raises(ValueError, match="in backward"):
            y.sum().backward()


def test_a_backward_that_is_compiled_itself_reads_its_ctx() -> None:
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        result, given = ctx.saved_tensors
        again = ctx.saved_tensors[0]
        return grad * result.sin() * ctx.scale + given + again if ctx.needs_input_grad[0] else None, None

    def make(method: Any) -> Any:
        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
                result = x + x
                ctx.save_for_backward(result, x)
                ctx.scale = scale
                return result

        Doubled.backward = staticmethod(method)  # type: ignore[method-assign]
        return Doubled

    eager = make(backward)
    compiled = make(stator.compile(backward, backend=backend, fullgraph=True, options={"strict": True}))
    for size, scale in ((3, 2.0), (3, 2.0), (4, 2.0), (3, 5.0)):
        grads = []
        for function in (eager, compiled):
            x = torch.arange(float(size), requires_grad=True)
            y = function.apply(x, scale).sum()
            y.backward()
            grads.append(x.grad)
        assert torch.equal(*grads)
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
        x = torch.arange(float(size), requires_grad=True)
        kept = x.clone()
        y = compiled.apply(kept, scale).sum()
        with torch.no_grad():
            kept.add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            y.backward()
    assert 0 < len(graphs) < 4
