"""Steps that switch requires_grad of the same leaves off and on, as the two players of a GAN do, beside eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network, values

WHOLE, BROKEN = Register(), Register()


def players(turns: str, layers: int = 1) -> World:
    """Each turn freezes (g) or thaws (d) the judge, and updates one of the two."""
    maker = network()
    judge = nn.Sequential(nn.Linear(4, 8), *[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(layers)],
                          nn.Linear(8, 1))
    first, second = torch.optim.SGD(maker.parameters(), lr=0.1), torch.optim.Adam(judge.parameters(), lr=0.01)

    def turn(name: str, x: Any) -> Any:
        for each in judge.parameters():
            each.requires_grad = name == "d"
        made, optimiser = maker(x), first
        if name == "d":
            made, optimiser = made.detach(), second
        optimiser.zero_grad()
        loss = judge(x * made).pow(2).mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    def step(x: Any, y: Any) -> Any:
        return [turn(name, x) for name in turns], [each.requires_grad for each in judge.parameters()]
    return World(step, batch, lambda: (
        look_at(maker, first)(), look_at(judge, second)(),
        [(each.requires_grad, each._version) for each in judge.parameters()]))


@WHOLE
def maker_first() -> World:
    return players("gd")


@WHOLE
def judge_first() -> World:
    return players("dg")


@WHOLE
def several_turns() -> World:
    return players("dgdgd")


@WHOLE
def layers_that_repeat() -> World:
    return players("gdgd", layers=6)


def over_weight(step: Any, arguments: Any = batch) -> World:
    weight = values(4, 4).requires_grad_()
    return World(lambda *given: step(weight, *given), arguments, lambda: (
        weight, weight.grad, weight._version, weight.requires_grad))


@WHOLE
def writes_while_frozen() -> World:
    def step(weight: Any, x: Any, y: Any) -> Any:
        weight.grad = None
        (x @ weight).pow(2).mean().backward()
        weight.requires_grad_(False)
        weight.sub_(weight.grad * 0.1).mul_(0.9)
        constant = (x @ weight).sum()
        weight.requires_grad_(True)
        (x @ weight).pow(2).sum().backward()
        return constant
    return over_weight(step)


@WHOLE
def written_before_it_thaws() -> World:
    def step(weight: Any, x: Any, y: Any) -> Any:
        weight.grad = None
        weight.requires_grad_(False)
        weight.mul_(0.9)
        constant = (x @ weight).sum()
        weight.requires_grad_(True)
        loss = (x @ weight).pow(2).sum()
        loss.backward()
        weight.requires_grad_(False)
        weight.sub_(weight.grad * 0.1)
        return constant, loss.detach()
    return over_weight(step)


@WHOLE
def checkpoints_of_both() -> World:
    def step(weight: Any, x: Any, y: Any) -> Any:
        weight.grad = None
        weight.requires_grad_(False)
        constant = checkpoint(lambda given: (given @ weight).tanh(), x, use_reentrant=False)
        weight.requires_grad_(True)
        checkpoint(lambda given: (given @ weight).tanh(), constant, use_reentrant=False).sum().backward()
        return constant
    return over_weight(step)


@WHOLE
def histories_that_leave() -> World:
    def step(weight: Any, x: Any, y: Any) -> Any:
        weight.requires_grad_(False)
        first = (x @ weight).sum()
        weight.requires_grad_(True)
        second = (x @ weight).pow(2).sum()
        weight.requires_grad_(False)
        third = (x @ weight).exp()
        weight.requires_grad_(True)
        return first, second, third
    return over_weight(step)


@WHOLE
def an_exception_while_frozen() -> World:
    def step(weight: Any, x: Any, y: Any, fails: bool) -> Any:
        loss = (weight * weight).sum()
        weight.requires_grad_(False)
        constant = (weight * 2).sum()
        if fails:
            raise KeyError("stop")
        weight.requires_grad_(True)
        (loss * constant + weight.sum()).backward()
    return over_weight(step, lambda i: (*batch(i), i % 2 == 1))


@WHOLE
def an_error_of_the_graph() -> World:
    def step(weight: Any, places: Any) -> Any:
        loss = (weight * weight).sum()
        weight.requires_grad_(False)
        constant = weight.index_select(0, places).sum()
        weight.requires_grad_(True)
        (loss * constant + weight.sum()).backward()
        weight.requires_grad_(False)
    return over_weight(step, lambda i: (torch.tensor([i % 2 * 7]),))


@BROKEN
def views_of_it() -> World:
    def step(weight: Any, x: Any, y: Any) -> Any:
        weight.requires_grad_(False)
        row = weight[0]
        weight.requires_grad_(True)
        (row * weight).sum().backward()
        weight.requires_grad_(False)
        return weight[1:]
    return over_weight(step)


@BROKEN
def other_memory_between() -> World:
    def step(weight: Any, x: Any, y: Any) -> Any:
        weight.requires_grad_(True)
        loss = (weight * weight).sum()
        weight.requires_grad_(False)
        weight.data = weight.data * 2
        constant = (weight * 2).sum()
        weight.requires_grad_(True)
        (constant * weight).sum().backward()
        weight.requires_grad_(False)
        return loss
    return over_weight(step)


@BROKEN
def frozen_before_the_pass() -> World:
    """The engine gives a frozen leaf no gradient."""
    model = network()

    def step(x: Any, y: Any) -> Any:
        model.requires_grad_(True)
        model.zero_grad()
        loss = model(x).mean()
        model[0].weight.requires_grad_(False)
        loss.backward()
        return loss.detach(), model[0].weight.grad
    return World(step, batch, look_at(model))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [*WHOLE, *BROKEN], ids=lambda make: make.__name__)
def test_equal(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5)
    assert bool(report.causes) is (make in BROKEN), report.causes
