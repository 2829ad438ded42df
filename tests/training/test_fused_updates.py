"""Whole steps with fused optimizers: the update is one kernel between compiled pieces, layers are compiled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import stator
from stator import events
from stator.backends.autograd_passes import JoinedPasses
from stator.backends.regions import plan
from stator.backends.step_gradients import EngineGradients
from tests.unit.backends.regions.test_regions import Block, Stack

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "Adam, amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=1e-2, amsgrad=True, fused=True),
    "SGD, momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, fused=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2, fused=True),
}


def train(backend: str | None, optimizer: str, model: Callable[[], nn.Module], losses: int = 1) -> list[torch.Tensor]:
    """Everything that five steps leave behind."""
    torch.manual_seed(0)
    trained = model()
    update = OPTIMIZERS[optimizer](trained.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        update.zero_grad()
        for _ in range(losses):
            loss = trained(x).square().mean()
            loss.backward()
        update.step()
        return loss.detach()

    call = step if backend is None else stator.compile(step, backend=backend)
    made = [call(torch.full((2, 5, 16), float(number))) for number in range(1, 6)]
    made += [each for parameter in trained.parameters() for each in (parameter, parameter.grad)]
    return made + [value for state in update.state.values() for value in state.values()]


def layers() -> nn.Module:
    return Stack([Block(16) for _ in range(5)], 16)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_step_is_captured_whole(optimizer: str) -> None:
    expected = train(None, optimizer, lambda: nn.Linear(16, 16))
    with events.record() as log:
        found = train("aot_eager", optimizer, lambda: nn.Linear(16, 16))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not [event for event in log if isinstance(event, (events.GraphBreak, events.EagerFallback))]


@pytest.mark.shares_entries
@pytest.mark.parametrize("losses", [1, 2])
def test_layers_of_a_step_are_compiled_once(losses: int) -> None:
    expected = train(None, "AdamW", layers, losses)
    with events.record() as log:
        found = train("aot_eager", "AdamW", layers, losses)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not [event for event in log if isinstance(event, (events.GraphBreak, events.EagerFallback))]
    cuts = [event.pieces for event in log if isinstance(event, events.GraphCut)]
    assert cuts and max(uses for pieces in cuts for _, uses in pieces) >= 5
    # The second capture, with the state there, has the same layers.
    assert [event for event in log if isinstance(event, events.GraphShared)]


def test_a_short_step_has_one_piece_for_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor gets few layers whole; what calls them is the same."""
    monkeypatch.setattr(plan, "least_repeats", lambda settings: plan.STEP_REPEATS)
    called = []
    call = JoinedPasses.__call__
    monkeypatch.setattr(JoinedPasses, "__call__", lambda self, *args: called.append(len(self.steps)) or call(self, *args))
    expected = train(None, "AdamW", layers)
    with events.record() as log:
        found = train("aot_eager", "AdamW", layers)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert called and set(called) == {1}
    assert not [event for event in log if isinstance(event, events.GraphCut)]


class Turned(torch.autograd.Function):
    """The identity; its gradient is laid out by columns."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.t().contiguous().t()


def test_gradients_have_the_layout_that_the_capture_promised() -> None:
    weight = torch.randn(3, 4, requires_grad=True)
    node = fx.Graph().call_function(torch.autograd.grad, ())
    node.meta["example_value"] = (FakeTensorMode().from_tensor(torch.empty(3, 4)),)
    expected, = torch.autograd.grad(Turned.apply(weight).square().sum(), weight)
    found, = EngineGradients(node)(Turned.apply(weight).square().sum(), [weight])
    assert expected.stride() == (1, 3) and found.stride() == (4, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("cycle", [False, True], ids=["rates", "rates and betas"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_numbers_that_change_recompile_nothing(optimizer: str, cycle: bool, backend: str) -> None:
    """The numbers of a fused kernel are data: a schedule changes learning rates, momentum and betas."""
    def train_with(backend: str | None) -> tuple[list[torch.Tensor], int]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 2))
        update = OPTIMIZERS[optimizer](model.parameters())
        schedules = torch.optim.lr_scheduler
        schedule: Any = schedules.OneCycleLR(update, 0.1, total_steps=50, cycle_momentum="Adagrad" not in optimizer) \
            if cycle else schedules.ExponentialLR(update, 0.8)

        def step(x: torch.Tensor, factor: float) -> torch.Tensor:
            update.zero_grad()
            loss = model(x).square().mean() * factor
            loss.backward()
            update.step()
            schedule.step()
            return loss.detach()

        call = step if backend is None else stator.compile(step, backend=backend)
        with events.record() as seen:
            made = [call(torch.full((5, 16), number / 10), 1.0 / number) for number in range(1, 9)]
        captures = [each for each in seen if isinstance(each, events.CaptureFinished)]
        assert not any(isinstance(each, (events.GraphBreak, events.EagerFallback)) for each in seen)
        return [*made, *model.parameters(), torch.tensor(schedule.get_last_lr())], len(captures)

    expected, _ = train_with(None)
    found, captures = train_with(backend)
    assert captures <= 4  # without state, with it, with numbers that vary
    torch.testing.assert_close(found, expected, **({"rtol": 0, "atol": 0} if backend == "eager" else {}))
