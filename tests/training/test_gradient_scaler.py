"""Steps under torch.amp.GradScaler beside eager: in one graph, and skipped where gradients are not finite."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import look_at, network, values

SCALED = Register()
BACKENDS = ("eager", "aot_eager")
INFINITE = (1, 4)  # calls whose gradients are not finite


def batch(i: int) -> tuple[Any, ...]:
    x = values(6, 4, seed=i)
    return x * float("inf") if i in INFINITE else x, values(6, 1, seed=i + 100)


def scaled(make: Any, *middle: nn.Module, **options: Any) -> World:
    model = network(*middle)
    optimiser = make(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad(**options)
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss
    return World(step, batch, lambda: (look_at(model, optimiser)(), scaler.state_dict()))


@SCALED
def sgd() -> World:
    return scaled(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))


@SCALED
def adam_behind_dropout_and_statistics() -> World:
    return scaled(lambda p: torch.optim.Adam(p, 0.01), nn.BatchNorm1d(8), nn.Dropout(0.3))


@SCALED
def lists_of_parameters() -> World:
    return scaled(lambda p: torch.optim.AdamW(p, 0.01, foreach=True))


@SCALED
def gradients_kept_in_place() -> World:
    return scaled(lambda p: torch.optim.SGD(p, 0.1), set_to_none=False)


@SCALED
def fused() -> World:
    return scaled(lambda p: torch.optim.Adam(p, 0.01, fused=True))


@SCALED
def two_optimisers() -> World:
    first, second = network(), network()
    optimisers = torch.optim.SGD(first.parameters(), 0.1), torch.optim.Adam(second.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    def step(x: Any, y: Any) -> Any:
        losses = []
        for model, optimiser in zip((first, second), optimisers, strict=True):
            optimiser.zero_grad()
            loss = F.mse_loss(model(x if model is first else x.nan_to_num(0.0, 1.0, -1.0)), y)
            scaler.scale(loss).backward()
            losses.append(loss)
        for optimiser in optimisers:
            scaler.step(optimiser)
        scaler.update()
        return losses
    return World(step, batch, lambda: (look_at(first, *optimisers)(), look_at(second)(), scaler.state_dict()))


@SCALED
def clipped_under_autocast() -> World:
    model = network()
    optimiser = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    seen: list[int] = []

    def step(x: Any, y: Any) -> Any:
        seen.append(len(seen))
        optimiser.zero_grad()
        for part, aim in zip(x.chunk(2), y.chunk(2), strict=True):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(model(part).float(), aim) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimiser)
        scaler.update()
        schedule.step()
        return norm
    return World(step, batch, lambda: (look_at(model, optimiser, schedule)(), scaler.state_dict(), list(seen)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", SCALED, ids=lambda make: make.__name__)
def test_skipped_steps(make: Make, backend: str) -> None:
    report = compare(make, 7, backend, 0.0 if backend == "eager" else 1e-2 if "autocast" in make.__name__ else 1e-5)
    assert report.causes == [] and not report.failures
    skipped = [each for each in report.fallbacks if "skips the step" in each]
    assert len(skipped) == (0 if make is fused else len(INFINITE))


def test_skipped_under_fullgraph() -> None:
    def run(compiled: bool) -> Any:
        torch.manual_seed(0)
        world = sgd()
        step = stator.compile(world.function, fullgraph=True, backend="eager") if compiled else world.function
        return [step(*batch(i)) for i in range(3)], world.look()
    torch.testing.assert_close(run(True), run(False), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_state_written_before(backend: str) -> None:
    """Gradients that are written in place and too large to be copied: the scaler's branch is a break."""
    def make() -> World:
        model = nn.Linear(1200, 1200)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

        def step(x: Any) -> Any:
            optimiser.zero_grad(set_to_none=False)
            scaler.scale(model(x).mean()).backward()
            scaler.step(optimiser)
            scaler.update()
        return World(step, lambda i: (values(2, 1200, seed=i) * (float("inf") if i == 3 else 1),),
                     lambda: (look_at(model)(), scaler.state_dict()))
    report = compare(make, 5, backend, 0.0 if backend == "eager" else 1e-5)
    assert set(report.causes) == {"a branch on a number that is unbacked ((v.item()) != 0.0)"}
