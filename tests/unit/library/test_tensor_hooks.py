"""Hooks on tensors of the graph that have effects: autograd calls them itself, as in eager."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

LOG: list[Any] = []
T = torch.Tensor


class Counter:
    count = 0

    def changed(self, grad: T) -> T:
        made = grad * grad if self.count % 2 == 0 else grad + grad
        self.count += 1
        return made


def through(grad: T, *, counter: Counter) -> T:
    return counter.changed(grad)


def note(grad: T) -> None:
    LOG.append(grad.clone())


class Saving(torch.nn.Module):
    """Keeps the gradient of what lies between its layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.kept = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), None

    def keep(self, grad: Any) -> None:
        self.kept = grad

    def forward(self, x: T, counter: Counter) -> T:
        hidden = self.first(x)
        hidden.register_hook(self.keep)
        return self.second(hidden.relu())  # type: ignore[no-any-return]


def twice(x: T, counter: Counter) -> T:
    y = x.mul(2)
    y.register_hook(functools.partial(through, counter=counter))
    y.register_hook(functools.partial(through, counter=counter))
    return y.mul(3)


def used_before(x: T, counter: Counter) -> T:
    y = x.sin()
    z = y * 3
    y.register_hook(note)
    return z + y * 2


def removed(x: T, counter: Counter) -> T:
    y = x * 2
    handle = y.register_hook(note)
    z = y * 3
    handle.remove()
    return z


def changed_in_place(x: T, counter: Counter) -> T:
    y = x * 2
    y.register_hook(note)
    z = y * 3
    y.mul_(x.detach())
    y.register_hook(note)
    return z + y


def of_a_constant(x: T, counter: Counter) -> T:
    number = 4
    y = x * 2
    y.register_hook(lambda grad: LOG.append(number))
    return y * 3


def without_a_gradient(x: T, counter: Counter) -> T:
    y = x.detach() * 2
    if y.requires_grad:
        y.register_hook(note)
    return y * x


def of_a_variable_assigned_later(x: T, counter: Counter) -> T:
    number = 1
    y = x * 2
    y.register_hook(lambda grad: LOG.append(number))
    number = 7
    return y * 3


def of_a_variable_assigned_behind_a_break(x: T, counter: Counter) -> T:
    number = 1
    y = x * 2
    y.register_hook(lambda grad: LOG.append(number))
    stator.graph_break()
    number = 7
    return y * 3


def of_a_node_and_a_variable(x: T, counter: Counter) -> T:
    number = 1
    y = x.sin()
    y.grad_fn.register_hook(lambda given, got: LOG.append(number))  # type: ignore[union-attr, func-returns-value]
    number = 7
    return y * 3


def counting(x: T, counter: Counter) -> Any:
    calls = 0

    def hook(grad: T) -> None:
        nonlocal calls
        calls += 1

    y = x * 2
    y.register_hook(hook)
    return y, lambda: calls


def counting_on_a_node(x: T, counter: Counter) -> Any:
    calls = 0

    def hook(given: Any, got: Any) -> None:
        nonlocal calls
        calls += 1

    y = x.sin()
    y.grad_fn.register_hook(hook)  # type: ignore[union-attr]
    return y, lambda: calls


def differentiated_inside(x: T, counter: Counter) -> T:
    y = x.sin()
    y.register_hook(note)
    grad, = torch.autograd.grad(y.sum(), x)
    return y.detach() * grad + len(LOG)


WHOLE = [twice, used_before, removed, changed_in_place, of_a_constant, without_a_gradient]
BREAKING = [of_a_variable_assigned_later, of_a_variable_assigned_behind_a_break, of_a_node_and_a_variable, counting,
            counting_on_a_node, differentiated_inside]


def observed(function: Callable[..., Any], module: Any = None) -> str:
    LOG.clear()
    counter, found = Counter(), []
    for scale in (1, 2, 3):
        x = (torch.arange(4.0) * scale).requires_grad_()
        made = function(x, counter)
        result, read = made if isinstance(made, tuple) else (made, lambda: None)
        if result.requires_grad:
            result.sum().backward()
        found += [result.detach(), x.grad, read()]
    return str((found, LOG, counter.count, getattr(module, "kept", None)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", WHOLE + BREAKING, ids=lambda program: program.__name__)
def test_as_in_eager(program: Callable[..., Any], backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=program in WHOLE)
    assert observed(compiled) == observed(program)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_method_of_the_module(backend: str) -> None:
    module, other = Saving(), Saving()
    expected = observed(module, module)
    assert observed(stator.compile(other, backend=backend, fullgraph=True), other) == expected
