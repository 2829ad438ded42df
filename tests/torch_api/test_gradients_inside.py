"""torch.autograd.grad inside captured code, beside eager: one graph where the whole history is in it, else a break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import grad
from torch.utils.checkpoint import checkpoint

import stator
from stator import events
from tests.torch_api.side_by_side import Register, World, compare

whole, broken = Register(), Register()


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weight() -> torch.Tensor:
    return values(4, 4).requires_grad_()


def layers(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Tanh(), nn.Linear(8, 1))


def one(program: Any, look: Any = lambda: None) -> World:
    return World(program, lambda i: (values(3, 4, seed=i),), look)


def gradients(model: nn.Module) -> Any:
    return lambda: ([each.grad for each in model.parameters()], model)


# ---------------------------------------------------------------------- captured


@whole
def of_a_leaf_made_inside() -> World:
    def program(x):
        x = x.detach().requires_grad_()
        slope, = grad((x ** 3).sum(), x)
        return slope * 2
    return one(program)


@whole
def of_a_leaf_after_operations_whose_layout_is_foreseen() -> World:
    def program(x):
        x = (x + 1) * 2
        leaf = x.detach().requires_grad_()
        loss = leaf * 2
        return loss.requires_grad, grad(loss.sum(), leaf)
    return one(program)


@whole
def of_parameters() -> World:
    model = layers(nn.Dropout(0.5), nn.BatchNorm1d(8))

    def program(x):
        slopes = grad(model(x).pow(2).sum(), model.parameters())
        model[0].weight.grad = slopes[0]
        return slopes, torch.rand(2), model[0].weight.grad.norm()
    return one(program, gradients(model))


@whole
def unused() -> World:
    first, second = weight(), weight()

    def program(x):
        return grad((x @ first).sum(), [first, second], allow_unused=True), \
            grad((x @ first).sum(), [first, second], materialize_grads=True)
    return one(program)


@whole
def with_seeds() -> World:
    w = weight()

    def program(x):
        y = x @ w
        return grad([y, y.sum()], [w], [torch.ones_like(y), None])
    return one(program)


@whole
def without_grad_mode() -> World:
    w = weight()

    def program(x):
        y = (x @ w).sum()
        with torch.no_grad():
            slope, = grad(y, w)
        return slope, slope.requires_grad
    return one(program)


@whole
def steps_inside_a_step() -> World:
    model = layers()

    def program(x):
        weights = dict(model.named_parameters())
        for _ in range(2):
            loss = torch.func.functional_call(model, weights, (x,)).pow(2).mean()
            slopes = grad(loss, list(weights.values()), create_graph=True)
            weights = {name: each - 0.1 * slope for (name, each), slope in zip(weights.items(), slopes, strict=True)}
        return torch.func.functional_call(model, weights, (x,)).pow(2).mean()
    return one(program)


@whole
def rows_of_a_hessian() -> World:
    def program(x):
        x = x.flatten()[:3].detach().requires_grad_()
        slope, = grad((x ** 3).sum(), x, create_graph=True)
        return torch.stack([grad(slope[i], x, retain_graph=True)[0] for i in range(3)])
    return one(program)


@whole
def jacobian() -> World:
    return one(lambda x: torch.autograd.functional.jacobian(lambda a: a ** 2, x.flatten()[:3]))


@whole
def a_hook_on_the_way() -> World:
    w = weight()

    def program(x):
        y = x @ w
        y.register_hook(lambda slope: slope * 3)
        return grad((y ** 2).sum(), w)
    return one(program)


@whole
def sizes_that_change() -> World:
    w = weight()
    return World(lambda x: grad(((x @ w) ** 2).sum(), w), lambda i: (values(3 + i, 4, seed=i),))


@whole
def under_autocast() -> World:
    model = layers()

    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().sum()
        return grad(loss, list(model.parameters()))
    return one(program)


# ---------------------------------------------------------------------- broken


@broken
def a_hook_on_a_leaf() -> World:
    w, log = weight(), []
    w.register_hook(lambda slope: log.append(slope.sum().item()) or slope * 2)

    def program(x):
        log.append("before")
        slope, = grad(((x @ w) ** 2).sum(), w)
        log.append("after")
        return slope
    return one(program, lambda: log)


@broken
def a_hook_that_comes_and_goes() -> World:
    w, handles = weight(), []

    def arguments(i):
        if i == 1:
            handles.append(w.register_hook(lambda slope: slope * 2))
        elif i == 2:
            handles.pop().remove()
        return (values(3, 4, seed=i),)
    return World(lambda x: grad(((x @ w) ** 2).sum(), w), arguments)


@broken
def a_hook_registered_inside() -> World:
    w = weight()

    def program(x):
        with w.register_hook(lambda slope: slope * 3):
            return grad(((x @ w) ** 2).sum(), w)
    return one(program)


@broken
def through_what_was_computed_outside() -> World:
    w = weight()
    return World(lambda y: (grad((y ** 2).sum(), w, retain_graph=True), grad((y ** 2).sum(), y)),
                 lambda i: (values(3, 4, seed=i) @ w,))


@whole
def through_a_function() -> World:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x ** 2

        @staticmethod
        def backward(ctx, slope):
            return slope * 3
    w = weight()
    return one(lambda x: grad(Square.apply(x @ w).sum(), w))


@broken
def refused() -> World:
    w = weight()

    def program(x):
        said = []
        for outputs, inputs in ((x @ w, w), ((x @ w).sum(), [w, x.clone().requires_grad_()]), (x.sum(), w)):
            try:
                grad(outputs, inputs)
            except RuntimeError as error:
                said.append(str(error))
        return said
    return one(program)


@broken
def one_gradient_twice() -> World:
    w = weight()

    def program(x):
        first, second = grad(((x @ w) ** 2).sum(), [w, w])
        return first, second, first is second
    return one(program)


# ---------------------------------------------------------------------- judged


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", whole, ids=lambda make: make.__name__)
def test_captured(make: Callable[[], World], backend: str) -> None:
    assert not compare(make, 3, backend, 0.0 if backend == "eager" else 1e-4).breaks


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", broken, ids=lambda make: make.__name__)
def test_broken(make: Callable[[], World], backend: str) -> None:
    assert "SB016" in compare(make, 3, backend, 0.0 if backend == "eager" else 1e-4).breaks


def test_graph_freed_by_the_first_call() -> None:
    def make() -> World:
        w = weight()

        def program(x):
            loss = ((x @ w) ** 2).sum()
            grad(loss, w)
            try:
                return grad(loss, w)
            except RuntimeError as error:
                return str(error)
        return one(program)
    compare(make, 3)
    compare(make, 3, "aot_eager")


RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def test_what_the_compiler_refuses_breaks() -> None:
    """AOTAutograd traces no gradients through a region that is to be recomputed."""
    def make() -> World:
        model = layers(nn.Dropout(0.5))
        return one(lambda x: (grad(checkpoint(model, x, use_reentrant=False).sum(), model[0].weight), torch.rand(2)))
    assert not compare(make, 3).breaks
    codes = compare(make, 3, "aot_eager", 1e-5).breaks
    assert codes == ["SB016"] or not codes and RELEASE < (2, 12)  # earlier releases trace them


def test_a_leaf_that_leaves_the_graph_is_made_between_two_graphs():
    """Compilers return no leaves: the trace is repeated without new leaves, and breaks where one is made."""
    def program(x):
        return (x * 2).detach().requires_grad_()

    compiled = stator.compile(program, backend="aot_eager")
    with events.record() as log:
        result = compiled(torch.ones(3))
    assert result.is_leaf and result.requires_grad and result.tolist() == [2.0] * 3
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
