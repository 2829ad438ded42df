"""Step counts of optimisers decide branches under guards; gradients that a step drops are freed before its graph."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import batch, look_at, network, trained_by, values


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name, options", [("RAdam", {"lr": 0.1}), ("ASGD", {"lr": 0.1, "t0": 3})])
def test_branches_on_step_counts_are_guarded(name: str, options: dict[str, Any], foreach: bool, backend: str) -> None:
    report = compare(lambda: trained_by(getattr(torch.optim, name), foreach=foreach, **options), 8, backend,
                     0.0 if backend == "eager" else 1e-5)
    assert not report.causes


def test_a_branch_on_state_follows_the_state() -> None:
    """The number changes outside of the call too, and in both directions."""
    def make() -> World:
        state = {"count": torch.tensor(0.0)}

        def function(x: torch.Tensor) -> torch.Tensor:
            state["count"] += 1
            if state["count"].item() ** 2 > 8.5:
                return x * state["count"]
            return x - 1

        def arguments(number: int) -> tuple[Any, ...]:
            if number == 5:
                state["count"].fill_(-1.0)
            return (values(3, seed=number),)

        return World(function, arguments, lambda: dict(state))

    assert not compare(make, 9).causes


def test_a_tensor_that_is_an_argument_still_breaks() -> None:
    def function(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        return x + 1 if limit.item() > 0.5 else x - 1

    report = compare(lambda: World(function, lambda number: (values(3), torch.tensor(number * 0.3))), 4)
    assert report.causes


def test_dropped_gradients_are_freed_before_the_graph() -> None:
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    old: list[Any] = []
    alive = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def run(*args: Any) -> Any:
            alive.append(sum(ref() is not None for ref in old))
            return module(*args)
        return run

    @stator.compile(backend=backend)
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimiser.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimiser.step()

    for number in range(3):
        step(*batch(number))
        old[:] = [weakref.ref(each.grad) for each in model.parameters()]
    assert alive == [0, 0, 0]


@pytest.mark.parametrize("looks", [False, True])
def test_a_failing_graph_leaves_gradients_as_eager(looks: bool) -> None:
    """A step that has read its gradients first reads the same ones when it is run again."""
    def make() -> World:
        model = nn.Linear(4, 1)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        seen: list[Any] = []

        def step(x: torch.Tensor) -> Any:
            if looks:
                seen.append([None if each.grad is None else each.grad.sum() for each in model.parameters()])
            optimiser.zero_grad()
            loss = model(x.cholesky()).sum() if x.dim() == 2 else model(x).sum()
            loss.backward()
            optimiser.step()
            return loss.detach()

        def arguments(number: int) -> tuple[Any, ...]:
            return ((-1.0 if number == 2 else 1.0) * torch.eye(4),)  # the third has no root

        return World(step, arguments, lambda: (look_at(model, optimiser)(), list(seen)))

    compare(make, 5)
