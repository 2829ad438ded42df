"""Gradients that share memory with one another, with a flat buffer, or with a buffer of the model, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network, values

STEPS = Register()
WHOLE = {"eager": {"flat_and_scaled", "flat_in_the_loss", "interleaved", "one_view", "read_without_a_pass", "in_a_buffer"},
         "aot_eager": {"interleaved", "read_without_a_pass", "in_a_buffer"}}


def over_flat(body: Callable[..., Any]) -> World:
    """The gradients of a model are parts of one tensor."""
    model = network()
    parameters = list(model.parameters())
    flat = torch.zeros(sum(each.numel() for each in parameters))
    optimiser = torch.optim.SGD(parameters, lr=0.1)
    for each, part in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
        each.grad = part.view_as(each)

    def step(x: Any, y: Any) -> Any:
        loss = body(model, flat, x, y)
        optimiser.step()
        return loss.detach()
    return World(step, batch, lambda: (look_at(model, optimiser)(), flat))


@STEPS
def flat_and_scaled() -> World:
    def body(model: Any, flat: Any, x: Any, y: Any) -> Any:
        flat.zero_()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        flat.div_(flat.norm().clamp(min=1))
        return loss
    return over_flat(body)


@STEPS
def flat_in_the_loss() -> World:
    def body(model: Any, flat: Any, x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y) + flat.abs().sum()
        loss.backward()
        return loss
    return over_flat(body)


@STEPS
def flat_that_the_pass_reads() -> World:
    def body(model: Any, flat: Any, x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y) + (flat[:4] * model[0].weight[0]).sum()
        loss.backward()
        return loss
    return over_flat(body)


@STEPS
def flat_that_a_hook_reads() -> World:
    def body(model: Any, flat: Any, x: Any, y: Any) -> Any:
        hidden = model[0](x)
        hidden.register_hook(lambda grad: grad + flat.sum())
        loss = F.mse_loss(model[2](model[1](hidden)), y)
        loss.backward()
        return loss
    return over_flat(body)


def of_two(first: Any, second: Any) -> World:
    one, other = values(4, 4).requires_grad_(), values(4, 4, seed=9).requires_grad_()
    one.grad, other.grad = first, second

    def step(x: Any, y: Any) -> Any:
        loss = (x @ one).sum() + (x @ other).pow(2).sum()
        loss.backward()
        return loss.detach()
    return World(step, batch, lambda: (one.grad, other.grad))


@STEPS
def interleaved() -> World:
    flat = torch.zeros(4, 8)
    return of_two(flat[:, ::2], flat[:, 1::2])


@STEPS
def overlapping() -> World:
    flat = torch.zeros(24)
    return of_two(flat[:16].view(4, 4), flat[8:].view(4, 4))


@STEPS
def one_view() -> World:
    weight, flat = values(4, 4).requires_grad_(), torch.zeros(16)
    weight.grad = flat.view(4, 4)

    def step(x: Any, y: Any) -> Any:
        flat.zero_()
        (x @ weight).pow(2).mean().backward()
        flat.div_(flat.norm())
        doubled = weight.grad * 2
        flat.mul_(2)
        with torch.no_grad():
            weight.sub_(weight.grad)
        return doubled
    return World(step, batch, lambda: (weight, weight.grad, flat))


def read(weight: Any, flat: Any, x: Any) -> Any:
    flat.add_(1)
    made = x @ weight.detach()
    flat.mul_(3)
    doubled = weight.grad * 2
    weight.grad.add_(1)
    return made, doubled, flat.sum()


@STEPS
def read_without_a_pass() -> World:
    """The buffer is an input before the parameter is, whose gradient comes with it."""
    weight, flat = values(4, 4).requires_grad_(), torch.zeros(16)
    weight.grad = flat.view(4, 4)
    return World(lambda x, y: read(weight, flat, x), batch, lambda: (weight, weight.grad, flat))


@STEPS
def in_a_buffer() -> World:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(values(4, 4))
            self.register_buffer("flat", torch.zeros(16))
            self.weight.grad = self.flat.view(4, 4)

        def forward(self, x: Any) -> Any:
            return read(self.weight, self.flat, x)
    layer = Layer()
    return World(lambda x, y: layer(x), batch, lambda: (look_at(layer)(), layer.flat))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_equal(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5)
    assert bool(report.causes) is (make.__name__ not in WHOLE[backend]), report.causes
