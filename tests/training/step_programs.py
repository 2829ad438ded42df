"""Plain train steps: a model, an optimiser, a step in ordinary PyTorch.

Each factory makes one world: the whole step is the compiled function. Compared after each step: the loss, parameters,
gradients, optimiser state, buffers and random streams.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from stator import events
from tests.torch_api.side_by_side import Register, World, compare

STEPS = Register()


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Tanh(), nn.Linear(8, 1))


def batch(i: int) -> tuple[Any, ...]:
    return values(6, 4, seed=i), values(6, 1, seed=i + 100)


def look_at(model: nn.Module, *others: Any) -> Callable[[], Any]:
    def look() -> Any:
        return (dict(model.state_dict()), [each.grad for each in model.parameters()],
                [each.state_dict() if hasattr(each, "state_dict") else each for each in others])
    return look


def descent(model: nn.Module, optimiser: Any, loss_of: Callable[..., Any], arguments: Any = batch,
            look: Callable[[], Any] | None = None) -> World:
    """A world whose step computes a loss, differentiates it and steps."""
    def step(*given: Any) -> Any:
        optimiser.zero_grad()
        loss = loss_of(*given)
        loss.backward()
        optimiser.step()
        return loss
    return World(step, arguments, look or look_at(model, optimiser))


def trained_by(make: Any, **options: Any) -> World:
    model = network()
    return descent(model, make(model.parameters(), **options), lambda x, y: F.mse_loss(model(x), y))


@STEPS
def sgd() -> World:
    return trained_by(torch.optim.SGD, lr=0.1)


@STEPS
def sgd_with_momentum() -> World:
    return trained_by(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


@STEPS
def adam() -> World:
    return trained_by(torch.optim.Adam, lr=0.01)


@STEPS
def adamw() -> World:
    return trained_by(torch.optim.AdamW, lr=0.01, amsgrad=True)


@STEPS
def rmsprop() -> World:
    return trained_by(torch.optim.RMSprop, lr=0.01)


@STEPS
def clipped() -> World:
    model = network(nn.Dropout(0.3))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimiser.step()
        return loss, norm
    return World(step, batch, look_at(model, optimiser))


@STEPS
def accumulated() -> World:
    model = network(nn.BatchNorm1d(8))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        total = 0.0
        for part, wanted in zip(x.chunk(3), y.chunk(3), strict=True):
            loss = F.mse_loss(model(part), wanted) / 3
            loss.backward()
            total = total + loss.detach()
        optimiser.step()
        optimiser.zero_grad()
        return total
    return World(step, batch, look_at(model, optimiser))


@STEPS
def with_tensor_hooks() -> World:
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x: Any, y: Any) -> Any:
        hidden = model[0](x)
        hidden.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        return F.mse_loss(model[2](model[1](hidden)), y)
    return descent(model, optimiser, loss_of)


@STEPS
def frozen_and_unused() -> World:
    model = network(nn.Linear(8, 8))
    model.register_module("spare", nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(x: Any, y: Any) -> Any:
        return F.mse_loss(model[3](model[2](model[1](model[0](x)))), y)
    return descent(model, optimiser, loss_of)


@STEPS
def tied() -> World:
    table, out = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    out.weight = table.weight
    model = nn.ModuleList([table, out])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(words: Any, wanted: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(out(table(words)), wanted)
        loss.backward()
        optimiser.step()
        return loss.item()
    return World(step, lambda i: (torch.tensor([1, 2, i]), torch.tensor([2, i, 4])), look_at(model, optimiser))


@STEPS
def penalised() -> World:
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(x: Any, y: Any) -> Any:
        x = x.detach().requires_grad_()
        judged = model(x)
        slope, = torch.autograd.grad(judged.sum(), x, create_graph=True)
        return F.mse_loss(judged, y) + ((slope.norm(dim=1) - 1) ** 2).mean() + sum(
            each.abs().sum() for each in model.parameters()) * 0.001
    return descent(model, optimiser, loss_of)


@STEPS
def scheduled() -> World:
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        schedule.step()
        return loss.detach(), optimiser.param_groups[0]["lr"]
    return World(step, batch, look_at(model, optimiser))


@STEPS
def averaged() -> World:
    model = network()
    average = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 0.1)
        return loss
    return World(step, batch, look_at(model, optimiser, average))


@STEPS
def written_by_hand() -> World:
    model = network()

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            for each in model.parameters():
                each -= 0.1 * each.grad
                each.grad = None
        return float(loss)
    return World(step, batch, look_at(model))


def print_graphs() -> None:
    """Print graphs and breaks of five steps of each program."""
    whole = 0
    for make in STEPS:
        report = compare(make, 5)
        captured = [event.graph for event in report.of(events.CaptureFinished) if event.graph is not None]
        whole += not report.causes
        print(f"{make.__name__:20} {len(captured)} graphs in 5 steps, {len(report.causes)} breaks")
    print(f"{whole} of {len(STEPS)} steps without a break")


if __name__ == "__main__":
    print_graphs()
