"""Hooks on nodes of autograd, by hand and by Module.register_backward_hook, compared with eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator

CALLS: list[Any] = []


def doubled(grads: Any, _: Any) -> Any:
    CALLS.append(len(grads))
    return tuple(None if each is None else each * 2 for each in grads)


def watched(module: Any, grads: Any, _: Any) -> None:
    CALLS.append((type(module).__name__, len(grads)))


def by_hand(x: Any) -> Any:
    y = x.sin()
    y.grad_fn.register_hook(doubled)
    return y * 3


def removed(x: Any) -> Any:
    y = x.sin()
    handle = y.grad_fn.register_hook(doubled)
    handle.remove()
    return y * 3


def made_inside(x: Any) -> Any:
    y = x.sin()
    y.grad_fn.register_hook(lambda grads, _: (grads[0] * 5,))
    return y * 3


def differentiated_inside(x: Any) -> Any:
    y = x.sin()
    y.grad_fn.register_hook(doubled)
    before = len(CALLS)
    grad, = torch.autograd.grad(y.sum(), x)
    return y.detach() * 3 + grad * (len(CALLS) - before)


def observed(function: Any) -> list[Any]:
    CALLS.clear()
    found: list[Any] = []
    for scale in (1.0, 2.0):
        x = (torch.arange(3.0) * scale).requires_grad_()
        result = function(x)
        if result.requires_grad:
            result.sum().backward()
        found += [result.detach().clone(), x.grad]
    return [*found, list(CALLS)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [by_hand, removed, made_inside, differentiated_inside], ids=lambda f: f.__name__)
def test_a_hook_by_hand(program: Any, backend: str) -> None:
    whole = backend == "eager" and program is not differentiated_inside
    compiled = stator.compile(program, backend=backend, fullgraph=whole)
    found, expected = observed(compiled), observed(program)
    torch.testing.assert_close(found[:-1], expected[:-1])
    assert found[-1] == expected[-1]


@pytest.mark.parametrize("layer", [torch.nn.Linear(3, 3), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())],
                         ids=["its own node", "another node, which warns"])
def test_a_hook_of_a_module(layer: Any) -> None:
    layer.register_backward_hook(watched)
    compiled = stator.compile(layer, backend="eager", fullgraph=True)
    sides = []
    for function in (compiled, layer):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            sides.append((observed(function), [(each.category, str(each.message)) for each in said]))
    torch.testing.assert_close(sides[0][0][:-1], sides[1][0][:-1])
    assert sides[0][0][-1] == sides[1][0][-1] and sides[0][1] == sides[1][1]
