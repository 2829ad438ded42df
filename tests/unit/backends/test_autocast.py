"""Gradients under autocast: the backward pass runs under the autocast around backward(), not under that of the forward pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import stator

Body = Any


def plain(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.c(m.b(m.a(x)).relu())


def inside(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return m.c(m.b(m.a(x)).relu())


def in_the_middle(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = m.b(y)
    return m.c(y.float())


def off_in_the_middle(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    with torch.autocast("cpu", enabled=False):
        y = m.b(y.float()).softmax(-1)
    return m.c(y)


def off_inside(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return off_in_the_middle(m, x)


class Model(nn.Module):
    def __init__(self, body: Any, layers: int) -> None:
        super().__init__()
        self.body, self.layers = body, nn.ModuleList()
        for _ in range(layers):
            layer = nn.Module()
            layer.a, layer.b, layer.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.layers.append(layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + self.body(layer, x).tanh()
        return x.float().sum()


def trained(model: Any, fn: Any, forward: bool, backward: bool) -> list[torch.Tensor]:
    found = []
    for _ in range(2):
        model.zero_grad()
        x = torch.linspace(-1, 1, 64).view(4, 16).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=forward):
            loss = fn(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=backward):
            loss.backward()
        found += [loss.detach(), x.grad, *[each.grad.clone() for each in model.parameters()]]
    return found


@pytest.mark.parametrize("layers", [1, 8])  # eight are cut into regions
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("body", [plain, inside, in_the_middle, off_in_the_middle, off_inside])
def test_gradients_equal_eager(body: Body, forward: bool, backward: bool, layers: int) -> None:
    torch.manual_seed(0)
    eager = Model(body, layers)
    model = copy.deepcopy(eager)
    expected = trained(eager, eager, forward, backward)
    got = trained(model, stator.compile(model, backend="aot_eager"), forward, backward)
    for left, right in zip(expected, got, strict=True):
        assert left.dtype == right.dtype and torch.equal(left, right)
