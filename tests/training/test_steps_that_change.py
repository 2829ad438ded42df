"""Train steps between whose calls the program changes what a step relies on, beside eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network

STEPS = Register()
SGD, Adam = torch.optim.SGD, torch.optim.Adam


def plain_step(model: Any, optimiser: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss
    return step


def changed_between(change: Any, make: Any = Adam, **options: Any) -> World:
    """A plain step; `change(i, model, optimiser)` runs before call number i."""
    model = network()
    optimiser = make(model.parameters(), **{"lr": 0.01, **options})

    def arguments(i: int) -> Any:
        change(i, model, optimiser)
        return batch(i)
    return World(plain_step(model, optimiser), arguments, look_at(model, optimiser))


@STEPS
def an_optimiser_that_is_exchanged() -> World:
    model = network()
    held = {"optimiser": SGD(model.parameters(), lr=0.1, momentum=0.9)}

    def arguments(i: int) -> Any:
        if i == 2:
            held["optimiser"] = Adam(model.parameters(), lr=0.01)
        if i == 4:
            held["optimiser"] = SGD(model.parameters(), lr=0.1, momentum=0.9)
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        held["optimiser"].zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        held["optimiser"].step()
        return loss
    return World(step, arguments, lambda: look_at(model, held["optimiser"])())


@STEPS
def a_group_that_is_added() -> World:
    model, more = network(), nn.Linear(1, 1)
    optimiser = SGD(model.parameters(), lr=0.1, momentum=0.9)

    def arguments(i: int) -> Any:
        if i == 2:
            optimiser.add_param_group({"params": more.parameters(), "lr": 0.02})
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(more(model(x)), y)
        loss.backward()
        optimiser.step()
        return loss
    return World(step, arguments, lambda: (look_at(model, optimiser)(), look_at(more)()))


@STEPS
def parameters_that_freeze_and_thaw() -> World:
    def change(i: int, model: Any, optimiser: Any) -> None:
        model[0].weight.requires_grad_(i not in (1, 2))
        model[2].bias.requires_grad_(i != 3)
    return changed_between(change, SGD, momentum=0.9, weight_decay=0.01)


@STEPS
def gradients_that_the_program_replaces() -> World:
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1)

    def arguments(i: int) -> Any:
        for number, each in enumerate(model.parameters()):
            if i == 1:
                each.grad = None
            if i == 2:
                each.grad = torch.full_like(each, 0.5)
            if i == 3 and number == 0:
                each.grad = torch.zeros(each.shape[::-1]).t()
            if i == 4 and each.grad is not None:
                each.grad = each.grad.expand_as(each.grad)[:]
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        F.mse_loss(model(x), y).backward()
        optimiser.step()
        return [each.grad.clone() for each in model.parameters()]
    return World(step, arguments, look_at(model, optimiser))


@STEPS
def state_that_is_loaded() -> World:
    kept: list[Any] = []

    def change(i: int, model: Any, optimiser: Any) -> None:
        if i == 2:
            kept.append((copy.deepcopy(model.state_dict()), copy.deepcopy(optimiser.state_dict())))
        if i == 4:
            model.load_state_dict(kept[0][0])
            optimiser.load_state_dict(kept[0][1])
    return changed_between(change)


@STEPS
def rates_by_several_schedules() -> World:
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedules = torch.optim.lr_scheduler
    steps = [schedules.OneCycleLR(optimiser, 0.2, total_steps=12), schedules.ReduceLROnPlateau(optimiser, patience=1),
             schedules.CosineAnnealingWarmRestarts(optimiser, 3), schedules.LambdaLR(optimiser, lambda e: 0.9 ** e)]

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss.detach()

    def arguments(i: int) -> Any:
        if i:
            chosen = steps[i % 4]
            chosen.step(0.5) if isinstance(chosen, schedules.ReduceLROnPlateau) else chosen.step()
        return batch(i)
    return World(step, arguments, look_at(model, optimiser))


@STEPS
def a_schedule_inside() -> World:
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedules = torch.optim.lr_scheduler
    schedule = schedules.SequentialLR(optimiser, [schedules.LinearLR(optimiser, 0.1, total_iters=3),
                                                  schedules.ExponentialLR(optimiser, 0.9)], [3])

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        schedule.step()
        return loss.detach(), schedule.get_last_lr()
    return World(step, batch, look_at(model, optimiser))


@STEPS
def a_layer_that_is_exchanged() -> World:
    def change(i: int, model: Any, optimiser: Any) -> None:
        if i == 2:
            model[1] = nn.ReLU()
        if i == 3:
            model[0].weight.data = torch.ones(8, 4)
        if i == 4:
            model[2].weight = nn.Parameter(torch.ones(1, 8))
    return changed_between(change)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_equal(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compare(make, 6, backend, 0.0 if backend == "eager" else 1e-5)
