"""Optimisers and whole train steps under one compiled function, bit for bit beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim

import stator
from stator import events
from torch_api.side_by_side import World, compare

OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adam foreach": lambda p: optim.Adam(p, lr=0.01, foreach=True),
    "adam amsgrad, lr a tensor": lambda p: optim.Adam(p, lr=torch.tensor(0.01), amsgrad=True),
    "adam fused": lambda p: optim.Adam(p, lr=0.01, fused=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adamw foreach": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "rmsprop": lambda p: optim.RMSprop(p, momentum=0.9, centered=True),
    "rmsprop foreach": lambda p: optim.RMSprop(p, foreach=True),
    "adafactor": lambda p: optim.Adafactor(p),
    "adafactor foreach": lambda p: optim.Adafactor(p, foreach=True),
    "adagrad": lambda p: optim.Adagrad(p),
    "adamax": lambda p: optim.Adamax(p),
    "nadam": lambda p: optim.NAdam(p),
    "rprop": lambda p: optim.Rprop(p),
    "adadelta": lambda p: optim.Adadelta(p),
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 30),
    "step": lambda o: optim.lr_scheduler.StepLR(o, 2),
    "multi step": lambda o: optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "restarts": lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "cyclic": lambda o: optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "multiplied": lambda o: optim.lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "polynomial": lambda o: optim.lr_scheduler.PolynomialLR(o, 5),
    "lambda": lambda o: optim.lr_scheduler.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "one cycle": lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "sequential": lambda o: optim.lr_scheduler.SequentialLR(
        o, [optim.lr_scheduler.LinearLR(o), optim.lr_scheduler.ExponentialLR(o, 0.9)], [3]),
}


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def state_of(module: nn.Module, optimiser: Any) -> Any:
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimiser.param_groups]
    return list(module.parameters()), [dict(optimiser.state[p]) for p in module.parameters()], groups


def step_alone(make: Callable[[Any], Any]) -> World:
    module = model()
    optimiser = make(module.parameters())

    def function() -> None:
        optimiser.step()

    def arguments(number: int) -> tuple[Any, ...]:
        optimiser.zero_grad()
        module(torch.randn(2, 4)).pow(2).sum().backward()
        return ()

    return World(function, arguments, lambda: state_of(module, optimiser))


def train_step(make: Callable[[Any], Any], schedule: Callable[[Any], Any] | None = None) -> World:
    module = model()
    optimiser = make(module.parameters())
    scheduler = schedule(optimiser) if schedule else None

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad()
        loss = F.mse_loss(module(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        if scheduler is not None:
            scheduler.step()
        return loss

    def look() -> Any:
        return state_of(module, optimiser), scheduler.get_last_lr() if scheduler else None

    return World(function, lambda i: (torch.randn(2, 4), torch.randn(2, 3)), look)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_alone_is_captured_whole(name: str) -> None:
    seen = compare(lambda: step_alone(OPTIMISERS[name]), calls=5)
    assert not seen.breaks, seen.causes
    assert sum(seen.captures[:2]) <= 2 and not any(seen.captures[2:])  # one that makes the state, one that has it


@pytest.mark.parametrize("name", ["sgd momentum", "adam", "adamw foreach", "rmsprop", "adafactor"])
@pytest.mark.parametrize("captured", [True, False])
def test_a_train_step_breaks_at_backward_alone(name: str, captured: bool) -> None:
    with stator.config.patch(capture_backward=captured):
        seen = compare(lambda: train_step(OPTIMISERS[name]), calls=6)
    assert set(seen.breaks) == (set() if captured else {"SB016"}), seen.causes
    assert not any(seen.captures[3:]), seen.captures


def sparse_step() -> World:
    module = nn.Embedding(6, 3, sparse=True)
    optimiser = optim.SparseAdam(module.parameters(), lr=0.1)

    def arguments(number: int) -> tuple[Any, ...]:
        optimiser.zero_grad()
        module(torch.tensor([number % 6, 2])).pow(2).sum().backward()
        return ()

    return World(lambda: optimiser.step(), arguments, lambda: state_of(module, optimiser))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_steps_on_sparse_gradients_are_not_compiled_for_ever(backend: str) -> None:
    seen = compare(sparse_step, calls=7, backend=backend, tolerance=1e-6)
    assert not any(seen.captures[4:]), seen.captures


def quasi_newton_step(line_search: str | None) -> World:
    module, x, y = model(), torch.randn(8, 4), torch.randn(8, 3)
    optimiser = optim.LBFGS(module.parameters(), lr=0.1, max_iter=4, history_size=3, line_search_fn=line_search)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = F.mse_loss(module(x), y)
        loss.backward()
        return loss

    return World(lambda: optimiser.step(closure), lambda i: (), lambda: state_of(module, optimiser))


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_is_one_break(line_search: str | None) -> None:
    """Its step branches on values all the time; below it the modules that its closure calls are compiled."""
    seen = compare(lambda: quasi_newton_step(line_search), calls=5)
    assert not seen.fallbacks
    assert len(seen.causes) == 1 and "LBFGS.step" in seen.causes[0], seen.causes
    assert sum(seen.captures) < 5 and not any(seen.captures[2:]), seen.captures
    graphs = [event.graph for event in seen.of(events.CaptureFinished) if event.graph is not None]
    assert len(graphs) == 1 and len(graphs[0].graph.find_nodes(op="placeholder")) == 5


AVERAGES: dict[str, dict[str, Any]] = {
    "swa": {}, "swa with buffers": {"use_buffers": True},
    "ema": {"multi_avg_fn": optim.swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "ema one by one": {"avg_fn": optim.swa_utils.get_ema_avg_fn(0.9)},
}


def averaged(settings: dict[str, Any]) -> World:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    average = optim.swa_utils.AveragedModel(module, **settings)

    def arguments(number: int) -> tuple[Any, ...]:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn_like(parameter))
        return (torch.randn(2, 4),)

    def function(x: torch.Tensor) -> torch.Tensor:
        average.update_parameters(module)
        return average(x)

    return World(function, arguments, lambda: list(average.state_dict().values()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_is_captured_once_for_the_first_and_once_for_the_others(name: str, backend: str) -> None:
    seen = compare(lambda: averaged(AVERAGES[name]), calls=6, backend=backend, tolerance=1e-6)
    assert not seen.breaks, seen.causes
    assert not any(seen.captures[3:]), seen.captures


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_inside_does_not_recompile_for_ever(name: str) -> None:
    seen = compare(lambda: train_step(OPTIMISERS["adamw"], SCHEDULERS[name]), calls=12)
    assert not seen.breaks, seen.causes
    assert not any(seen.captures[8:]), seen.captures


@pytest.mark.parametrize("backend,tolerance",
                         [("aot_eager", 1e-6), pytest.param("inductor", 1e-4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["sgd momentum", "adamw"])
def test_a_train_step_under_compilers(name: str, backend: str, tolerance: float, tmp_path: Any,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    seen = compare(lambda: train_step(OPTIMISERS[name], SCHEDULERS["cosine"]), 6, backend, tolerance)
    assert not any(seen.captures[4:]), seen.captures


def test_capturable_on_the_cpu_is_refused_as_in_eager() -> None:
    compare(lambda: step_alone(lambda p: optim.Adam(p, capturable=True, foreach=False)))


@pytest.mark.parametrize("name", ["radam", "asgd"])
def test_steps_that_branch_on_step_counts_are_whole(name: str) -> None:
    make = {"radam": lambda p: optim.RAdam(p), "asgd": lambda p: optim.ASGD(p)}[name]
    seen = compare(lambda: step_alone(make), calls=8)
    assert not seen.breaks, seen.causes


# ---------------------------------------------------------------------- numbers that steps are made of


def scaled(x: torch.Tensor, rate: float) -> tuple[torch.Tensor, ...]:
    return x.addcdiv(x, x + 3, value=-rate), x.add(x, alpha=rate), x * (1 - rate), x.lerp(x + 1, rate), x / rate


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_float_that_changes_is_never_stale(backend: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compare(lambda: World(scaled, lambda i: (torch.ones(3) * (i + 1), 0.5 / (i + 1))), 6, backend, 1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_tensor_taken_for_a_number(backend: str) -> None:
    def function(x: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        return x.addcdiv_(x, x + 1, value=rate) + rate

    world = World(function, lambda i: (torch.ones(3) * (i + 1), torch.tensor(0.5 + i)))
    seen = compare(lambda: world, backend=backend, tolerance=1e-6)
    assert not seen.breaks and seen.captures == [1, 0, 0, 0]


def test_in_place_arithmetic_with_an_open_number_stays_in_place() -> None:
    def function(x: torch.Tensor, n: int, rate: float) -> torch.Tensor:
        x += n
        x *= rate
        return x

    seen = compare(lambda: World(function, lambda i: (torch.ones(3), 2 + i, 0.5 + i)), calls=5)
    assert not seen.breaks and not any(seen.captures[2:])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_division_by_an_item_that_is_zero_raises(backend: str) -> None:
    def function(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x * (1.0 / t.item())

    values = [2.0, 4.0, 0.0, 5.0]
    seen = compare(lambda: World(function, lambda i: (torch.ones(2), torch.tensor(values[i]))), 4, backend, 1e-6)
    assert not seen.breaks and seen.captures == [1, 0, 0, 0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_powers_of_an_item_raise_and_turn_complex_as_in_eager(backend: str) -> None:
    def function(x: torch.Tensor, t: torch.Tensor) -> Any:
        n = t.item()
        return x * 0.5**n, n**0.5, n**-0.5, n**2

    values = [2.0, 4.0, -1.0, 0.0, 1e200, 9.0]
    compare(lambda: World(function, lambda i: (torch.ones(2), torch.tensor(values[i], dtype=torch.float64))), 6, backend,
            1e-9)
