"""grad_fn and version counters inside captured code: what only autograd's own record answers is asked of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.torch_api.side_by_side import World, compare

PROGRAMS: list[Callable[[], World]] = []


def program(make: Callable[[], World]) -> Callable[[], World]:
    PROGRAMS.append(make)
    return make


def of_history(number: int) -> torch.Tensor:
    x = (torch.arange(3.0) + number).requires_grad_()
    return x * 2 if number % 2 == 0 else x + 1


@program
def class_of_an_outside_node() -> World:
    return World(lambda x: (type(x.grad_fn).__name__, x * 2), lambda i: (of_history(i),))


@program
def text_of_an_outside_node() -> World:
    return World(lambda x: ("Mul" in str(x.grad_fn), repr(x.grad_fn)[:5], x * 2), lambda i: (of_history(i),))


@program
def after_a_write() -> World:
    def step(x: Any) -> Any:
        x.mul_(2)
        return type(x.grad_fn).__name__, x
    return World(step, lambda i: (of_history(i),))


@program
def name_of_an_inner_node() -> World:
    def step(x: Any) -> Any:
        y = x * 2
        return y.grad_fn.name(), len(y.grad_fn.next_functions), y + 1
    return World(step, lambda i: (of_history(i),))


@program
def hooks_on_an_inner_node() -> World:
    notes: list[int] = []

    def step(x: Any) -> Any:
        y = x * 2
        y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 3,))
        y.grad_fn.register_hook(lambda given, got: notes.append(len(got)))
        y.sum().backward()
        return y
    leaves: list[Any] = []

    def arguments(i: int) -> Any:
        leaves[:] = [(torch.arange(3.0) + i).requires_grad_()]
        return tuple(leaves)
    return World(step, arguments, lambda: (list(notes), leaves[0].grad))


@program
def backward_hook_of_the_old_kind() -> World:
    torch.manual_seed(1)
    model, notes = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model[2].register_backward_hook(lambda module, given, got: notes.append(len(given)))

    def step(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        return loss
    return World(step, lambda i: (torch.ones(2, 4) + i,), lambda: (list(notes), [p.grad for p in model.parameters()]))


@program
def version_after_writes() -> World:
    def step(x: Any) -> Any:
        before = x._version
        y = x * 2
        y.add_(1)
        x.add_(1)
        return y._version, x._version - before, y
    return World(step, lambda i: (torch.arange(3.0) + i,))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_equals_eager(make: Callable[[], World], backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    seen = compare(make, calls=4, backend=backend, tolerance=0.0 if backend == "eager" else 1e-6)
    assert sum(seen.captures) > 0  # none runs eagerly as a whole


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_node_that_leaves_ends_the_graph_before_it(backend: str) -> None:
    """The first trace learns at its end that it should have stopped; the second one stops there."""
    def node_of(x: torch.Tensor) -> Any:
        y = (x * 2).sin()
        return y.grad_fn, y

    compiled = stator.compile(node_of, backend=backend)
    with events.record() as log:
        for _ in range(2):
            x = torch.ones(3, requires_grad=True)
            node, y = compiled(x)
            assert node is y.grad_fn and type(node).__name__ == "SinBackward0"
            assert torch.equal(y, node_of(x)[1])
    assert sum(isinstance(event, events.BackendCompiled) for event in log) >= 1, "what comes before it is a graph"
