"""Train steps that do unusual things to leaves, gradients and histories inside one call, beside eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network, values

STEPS = Register()
SGD, Adam = torch.optim.SGD, torch.optim.Adam


@STEPS
def shared_parameters() -> World:
    first, last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    last.weight = first.weight
    optimiser = Adam([first.weight], lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = (last(first(x).tanh()) + F.linear(x, first.weight.t()) - y).pow(2).mean()
        loss.backward()
        optimiser.step()
        return loss
    return World(step, batch, look_at(first, optimiser))


@STEPS
def a_saved_tensor_that_is_written() -> World:
    model = network()

    def step(x: Any, y: Any, wrong: bool) -> Any:
        model.zero_grad()
        hidden = model[0](x).exp()
        loss = F.mse_loss(model[2](hidden), y)
        if wrong:
            hidden.add_(1)
        try:
            loss.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return loss.detach()
    return World(step, lambda i: (*batch(i), i % 2 == 1), look_at(model))


class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, refuses: bool) -> Any:
        ctx.refuses = refuses
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.refuses:
            raise ValueError("refused")
        return grad * 2, None


@STEPS
def an_exception_in_the_backward_pass() -> World:
    model = network()

    def step(x: Any, y: Any, refuses: bool) -> Any:
        model.zero_grad()
        hidden = Refusing.apply(model[0](x), refuses)
        loss = F.mse_loss(model[2](hidden), y)
        try:
            loss.backward()
        except ValueError as error:
            return str(error), [each.grad is None for each in model.parameters()]
        return loss.detach()
    return World(step, lambda i: (*batch(i), i in (1, 4)), look_at(model))


@STEPS
def an_exception_that_leaves() -> World:
    """Effects before it stay."""
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1)
    log: list[Any] = []

    def step(x: Any, y: Any, fails: bool) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        log.append(loss.detach())
        loss.backward()
        if fails:
            raise KeyError("stop")
        optimiser.step()
        return loss.detach()
    return World(step, lambda i: (*batch(i), i in (1, 3)), lambda: (look_at(model, optimiser)(), list(log)))


@STEPS
def accumulated_in_a_loop_of_any_length() -> World:
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1)

    def step(parts: Any) -> Any:
        optimiser.zero_grad()
        total = 0.0
        for number, (x, y) in enumerate(parts):
            loss = F.mse_loss(model(x), y) / len(parts)
            loss.backward()
            total += loss.item()
            if number == 1:
                nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimiser.step()
        return total
    return World(step, lambda i: ([batch(i + n) for n in range(1 + i % 3)],), look_at(model, optimiser))


@STEPS
def two_losses_one_after_the_other() -> World:
    model, head = network(), nn.Linear(8, 1)
    optimisers = [SGD(model.parameters(), lr=0.1), Adam(head.parameters(), lr=0.01)]

    def step(x: Any, y: Any) -> Any:
        for each in optimisers:
            each.zero_grad()
        hidden = model[1](model[0](x))
        first, second = F.mse_loss(model[2](hidden), y), F.l1_loss(head(hidden), y)
        first.backward(retain_graph=True)
        middle = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
        second.backward()
        for each in optimisers:
            each.step()
        return first, second.detach(), middle
    return World(step, batch, lambda: (look_at(model, *optimisers)(), look_at(head)()))


@STEPS
def a_second_pass_after_retain_graph() -> World:
    model = network()

    def step(x: Any, y: Any) -> Any:
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        with torch.no_grad():
            for each in model.parameters():
                each.grad.mul_(0.5)
        loss.backward(retain_graph=True)
        loss.backward()
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)[:40]
    return World(step, batch, look_at(model))


@STEPS
def nested_grad_modes() -> World:
    model = network()

    def step(x: Any, y: Any) -> Any:
        model.zero_grad()
        with torch.no_grad():
            constant = model(x)
            with torch.enable_grad():
                loss = F.mse_loss(model(x), y + constant)
                with torch.no_grad():
                    loss.backward()
            untracked = model(x).requires_grad
        with torch.set_grad_enabled(False):
            scaled = loss * 2
        with torch.inference_mode():
            score = model(x).sum()
        return loss.detach(), scaled, untracked, score.clone(), torch.is_grad_enabled()
    return World(step, batch, look_at(model))


@STEPS
def averages_by_exchange() -> World:
    """Evaluate on averaged weights, then put the own ones back."""
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1)
    average = [each.detach().clone() for each in model.parameters()]

    def exchange() -> None:
        for own, kept in zip(model.parameters(), average, strict=True):
            own.data, kept.data = kept.data, own.data

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for own, kept in zip(model.parameters(), average, strict=True):
                kept.lerp_(own, 0.1)
        return loss.detach()

    def arguments(i: int) -> Any:
        if i % 2:
            exchange()
        return batch(i)
    return World(step, arguments, lambda: (look_at(model, optimiser)(), average))


@STEPS
def gradients_of_inputs() -> World:
    model = network()
    optimiser = SGD(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            moved = x + 0.1 * x.grad.sign()
        F.mse_loss(model(moved), y).backward()
        optimiser.step()
        return x.grad, loss.detach()
    kept: list[Any] = []

    def arguments(i: int) -> Any:
        x, y = batch(i)
        kept.append(x.requires_grad_())
        return x, y
    return World(step, arguments, lambda: (look_at(model, optimiser)(), [each.grad for each in kept]))


@STEPS
def leaves_of_other_dtypes() -> World:
    whole, half = values(4, 4).requires_grad_(), values(4, 4).bfloat16().requires_grad_()

    def step(x: Any) -> Any:
        whole.grad = half.grad = None
        loss = ((x @ whole) @ half.float()).pow(2).mean()
        loss.backward()
        return loss.detach(), half.grad.dtype
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (whole.grad, half.grad))


@STEPS
def gradients_that_others_hold() -> World:
    """A list keeps the gradients of each step, which later steps must not change."""
    model, kept = network(), []
    optimiser = SGD(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        F.mse_loss(model(x), y).backward()
        kept.append([each.grad for each in model.parameters()])
        optimiser.step()
    return World(step, batch, lambda: (look_at(model, optimiser)(), kept))


@STEPS
def updates_in_the_middle() -> World:
    """The second half of a step sees the weights that the first half has written."""
    model = network(nn.BatchNorm1d(8), nn.Dropout(0.2))
    optimiser = Adam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        found = []
        for part, aim in zip(x.chunk(2), y.chunk(2), strict=True):
            optimiser.zero_grad()
            loss = F.mse_loss(model(part), aim)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimiser.step()
            found.append((loss.detach(), norm))
        model.eval()
        with torch.no_grad():
            found.append(F.mse_loss(model(x), y))
        model.train()
        return found
    return World(step, batch, look_at(model, optimiser))


@STEPS
def hooks_that_come_from_a_factory() -> World:
    """Each call registers a hook with a number of its own, and removes the one before."""
    model = network()
    handles: list[Any] = []

    def arguments(i: int) -> Any:
        if handles:
            handles.pop().remove()

        def hook(grad: Any, by: float = 1.0 + i) -> Any:
            return grad * by
        handles.append(model[0].weight.register_hook(hook))
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
    return World(step, arguments, look_at(model))


@STEPS
def a_module_that_is_partly_used() -> World:
    model, heads = network(), nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    optimiser = Adam([*model.parameters(), *heads.parameters()], lr=0.01)

    def step(x: Any, y: Any, which: int) -> Any:
        optimiser.zero_grad(set_to_none=True)
        loss = F.mse_loss(heads[which](model(x)), y)
        loss.backward()
        optimiser.step()
        return loss.detach(), [each.grad is None for each in heads.parameters()]
    return World(step, lambda i: (*batch(i), i % 3), lambda: (look_at(model, optimiser)(), look_at(heads)()))


@STEPS
def a_leaf_that_is_written_before_the_pass() -> World:
    weight, scale = values(4, 1).requires_grad_(), torch.ones(1)

    def step(x: Any, y: Any) -> Any:
        weight.grad = None
        loss = (x @ weight - y).pow(2).mean() * scale
        with torch.no_grad():
            scale.mul_(0.9)
        try:
            loss.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return loss.detach()
    return World(step, batch, lambda: (weight, weight.grad, scale))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_equal(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compare(make, 6, backend, 0.0 if backend == "eager" else 1e-5)
