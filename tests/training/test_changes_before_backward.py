"""Code that a captured backward pass runs, and that reads what the call changes between forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import values

READERS: list[Callable[[Any, Any], Any]] = []
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


class Settings:
    scale = 1.0
    count = 0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, settings: Any) -> Any:
        ctx.settings, ctx.spare = settings, 1.0
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        factor = ctx.settings.scale * ctx.spare
        del ctx.spare
        return grad * factor, None


class ScaledInPlace(Scaled):
    @staticmethod
    def forward(ctx: Any, x: Any, settings: Any) -> Any:
        ctx.settings, ctx.spare = settings, 1.0
        ctx.mark_dirty(x)
        return x.mul_(1.0)


def reader(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    READERS.append(function)
    return function


@reader
def function(x: Any, settings: Any) -> Any:
    return Scaled.apply(x, settings).sum()


@reader
def function_in_place(x: Any, settings: Any) -> Any:
    return ScaledInPlace.apply(x, settings).sum()


@reader
def hook(x: Any, settings: Any) -> Any:
    x.register_hook(lambda grad: grad * settings.scale)
    return x.sum()


@reader
def plain_checkpoint(x: Any, settings: Any) -> Any:
    return checkpoint(lambda x: (x * settings.scale).sin(), x, use_reentrant=False).sum()


@reader
def reentrant_checkpoint(x: Any, settings: Any) -> Any:
    return checkpoint(lambda x: (x * settings.scale).sin(), x, use_reentrant=True).sum()


@reader
def unpacked(x: Any, settings: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda packed: packed * settings.scale):
        return x.sin().sum()


def world(read: Callable[[Any, Any], Any], changed: str) -> World:
    weight, settings = values(3, 4).requires_grad_(), Settings()

    def step(x: Any, number: Any) -> Any:
        weight.grad = None
        settings.scale = 1.0
        loss = read(x * weight, settings)
        if changed == "scale":
            settings.scale = number
        elif changed == "count":
            settings.count += 1
        loss.backward()
        return loss.detach()
    return World(step, lambda i: (values(3, 4, seed=i), 2.0 + i), lambda: (weight.grad, settings.scale, settings.count))


@BACKENDS
@pytest.mark.parametrize("changed", ["scale", "count", "nothing"])
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_equal_to_eager(read: Callable[[Any, Any], Any], changed: str, backend: str) -> None:
    compare(lambda: world(read, changed), 4, backend, 0.0 if backend == "eager" else 1e-5)


@BACKENDS
@pytest.mark.parametrize("changed", ["count", "nothing"])
@pytest.mark.parametrize("read", [hook, plain_checkpoint, reentrant_checkpoint], ids=lambda read: read.__name__)
def test_whole_where_other_things_change(read: Callable[[Any, Any], Any], changed: str, backend: str) -> None:
    assert not compare(lambda: world(read, changed), 4, backend, 0.0 if backend == "eager" else 1e-5).causes


@BACKENDS
def test_a_list_of_the_call_itself(backend: str) -> None:
    def make() -> World:
        weight = values(3, 4).requires_grad_()

        def step(x: Any, number: Any) -> Any:
            weight.grad, scales = None, [1.0]
            made = x * weight
            made.register_hook(lambda grad: grad * scales[0])
            scales[0] = number
            made.sum().backward()
        return World(step, lambda i: (values(3, 4, seed=i), 2.0 + i), lambda: weight.grad)
    compare(make, 3, backend, 0.0 if backend == "eager" else 1e-5)
