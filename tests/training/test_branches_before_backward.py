"""Branches on data between the losses and their backward pass: captured, and equal to eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.comparison.call_outcome import seed_streams
from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import values

BACKENDS = ("eager", "aot_eager")
Network = Callable[[], nn.Module]


class FiniteCheck(nn.Module):
    """As layers of DETR and its like have it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x).transpose(0, 1)
        if not torch.isfinite(h).all():
            h = torch.clamp(h, min=-100, max=100)
        return self.second(h.transpose(0, 1))


class LayerDrop(nn.Module):
    def __init__(self, layers: int = 2, drop: float = 0.4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(layers)])
        self.head, self.drop = nn.Linear(4, 4), drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x)
        for layer in self.layers:
            to_drop = False
            if torch.rand([]) < self.drop:
                to_drop = True
            if not to_drop:
                x = nn.functional.dropout(layer(x), 0.5, self.training)
        return x


class OtherLeaves(FiniteCheck):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if h.sum() > 0:
            h = self.second(h)
        return h


class WrittenDraw(nn.Module):
    """A number that is written to after it was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = torch.rand([])
        number.mul_(2).sub_(x.sum() * 0 + 1)
        return self.layer(x) * (2 if number < 0 else 3)


def trained(network: Network, backend: str | None, inputs: list[torch.Tensor]) -> Any:
    seed_streams(3)
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimiser.step()
        return loss

    run = step if backend is None else stator.compile(step, backend=backend)
    losses = [run(x).detach() for x in inputs]
    grads = [each.grad for each in model.parameters()]
    return [*losses, *grads, *[each.detach() for each in model.parameters()], torch.get_rng_state()]


def require_equal(network: Network, backend: str, inputs: list[torch.Tensor]) -> list[Any]:
    expected = trained(network, None, inputs)
    with events.record() as log:
        found = trained(network, backend, inputs)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=0 if backend == "eager" else 1e-5, atol=0, equal_nan=True)
            assert ours.stride() == theirs.stride()
    assert not [each for each in log if isinstance(each, events.EagerFallback)]
    return [each for each in log if isinstance(each, events.GraphBreak)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_check_for_finite_values_is_captured(backend: str) -> None:
    usual = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert require_equal(FiniteCheck, backend, [usual, usual * 2, usual * float("inf"), usual]) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_skipped_at_random_are_specialised(backend: str) -> None:
    usual = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert require_equal(lambda: LayerDrop(1), backend, [usual] * 10) == []


def test_many_patterns_of_skipped_layers_break() -> None:
    usual = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    breaks = require_equal(lambda: LayerDrop(4), "eager", [usual] * 12)
    assert breaks


def test_ways_with_gradients_of_their_own_break_at_the_backward_pass() -> None:
    usual = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    breaks = require_equal(OtherLeaves, "eager", [usual, -usual, usual])
    assert any("gradients" in each.cause or "backward" in each.cause for each in breaks)


def test_a_branch_on_a_value_under_a_guard_takes_one_way() -> None:
    class Lengths(FiniteCheck):
        def forward(self, x: torch.Tensor) -> Any:
            parts = []
            if torch.tensor([2, 3]).sum() > 4:
                parts.append(self.first(x))
            return self.second(parts[0])

    usual = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert require_equal(Lengths, "eager", [usual, -usual]) == []


def test_a_draw_that_is_written_to_decides_nothing_ahead() -> None:
    usual = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    require_equal(WrittenDraw, "eager", [usual] * 6)


def test_without_a_backward_pass_a_branch_breaks_as_before() -> None:
    model = FiniteCheck()
    with events.record() as log:
        stator.compile(model, backend="eager")(torch.ones(3, 4))
    assert [each for each in log if isinstance(each, events.GraphBreak)]


def test_a_branch_over_symbolic_sizes() -> None:
    usual = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    require_equal(FiniteCheck, "eager", [usual[:3], usual[:4], usual[:5], usual])


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_on_leaves_behind_a_branch_run_once(backend: str) -> None:
    def make() -> World:
        inner, seen = nn.Linear(4, 4), []
        inner.weight.register_hook(lambda grad: seen.append(grad.sum()) or grad * 0.7)

        def step(x: Any) -> None:
            for part in x.chunk(2):
                y = inner(part)
                if y.sum() > 0:
                    y = inner(y)
                y.pow(2).mean().backward()
        return World(step, lambda i: (values(4, 4, seed=i),), lambda: (inner.weight.grad, inner.bias.grad, list(seen)))
    assert compare(make, 3, backend, 0.0 if backend == "eager" else 1e-5).causes == []
