"""options={"capture_control_flow": True} while training: gradients, None or not, and random streams as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from stator import events
from tests.comparison import Programs

programs, cut_by_hand = Programs(), Programs()


class Layers(nn.Module):
    def __init__(self, program: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third, self.last = (nn.Linear(4, 4) for _ in range(4))
        self.dropout, self.program = nn.Dropout(0.3), program

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(self, x)


@programs
def dropout_in_one_way(self, x):
    if x.sum() > 0:
        y = self.dropout(self.first(x))
    else:
        y = self.second(x)
    return self.last(y)


@programs
def a_way_that_does_nothing(self, x):
    if x.sum() > 0:
        x = F.dropout(self.first(x), 0.5)
    return self.last(x)


@programs
def a_branch_in_a_branch(self, x):
    if x.sum() > 0:
        y = self.first(x)
        if y.sum() > 0:
            y = self.dropout(self.second(y))
        else:
            y = self.third(y)
    else:
        y = self.dropout(self.last(x))
    return y * 2


@programs
def layers_that_are_left_out(self, x):
    for layer in (self.first, self.second, self.third, self.last):
        if torch.rand([]) > 0.5:
            x = self.dropout(layer(x))
    return x


@programs
def random_numbers_before_and_after(self, x):
    x = self.dropout(self.first(x)).relu()
    if x.max() > 1:
        y = F.dropout(x, 0.5) * self.second(x)
    else:
        y = F.dropout(x, 0.2)
    return self.last(self.dropout(y))


@programs
def ways_that_return(self, x):
    if x.sum() > 0:
        return self.dropout(self.first(x))
    return self.second(x) * 2


@programs
def one_layer_in_both_ways(self, x):
    if x.sum() > 0:
        y = self.first(x)
    else:
        y = self.second(self.first(x))
    return self.first(y)


@programs
def several_results(self, x):
    if x.sum() > 0:
        y, z = self.first(x), self.second(x)
    else:
        y, z = self.dropout(self.third(x)), x * 2
    return y * z


@programs
def parts_on_both_sides(self, x):
    first, second = self.first(x).chunk(2, -1)
    if x.sum() > 0:
        y = first * 2
    else:
        y = second * self.second.weight[0, 0]
    return torch.cat([y, first], -1)


@programs
def without_gradients_inside(self, x):
    y = self.first(x)
    if x.sum() > 0:
        with torch.no_grad():
            kept = self.dropout(self.second(x))
        y = y * kept
    else:
        y = self.third(y)
    return y


@programs
def a_loss(self, x):
    total = self.first(x).pow(2).mean()
    if total > 0.5:
        total = total + self.second(x).mean()
    return total


@programs
def a_condition_that_is_a_number(self, x):
    if x.sum().item() > 0:
        x = self.dropout(self.first(x))
    else:
        x = self.second(x)
    return self.last(x)


@cut_by_hand
def written_as_cond(self, x):
    return self.last(torch.cond(x.sum() > 0, lambda x: self.first(x), lambda x: self.second(x), (x,)))


UP = torch.ones(2, 4)
MIXED = torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]]) - 2.5


def training_step(module: nn.Module, fn: Any, x: torch.Tensor) -> list[Any]:
    module.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    y = fn(x)
    drawn = float(torch.rand(()))
    y.sum().backward()
    return [y.detach(), x.grad, drawn, float(torch.rand(())), [each.grad for each in module.parameters()]]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", [*programs, *cut_by_hand])
def test_training_equals_eager(name: str, backend: str) -> None:
    module = Layers({**programs, **cut_by_hand}[name])
    compiled = stator.compile(module, backend=backend, options={"capture_control_flow": True})
    with events.record() as log:
        for x in (UP, -UP, MIXED, UP):
            found = training_step(module, compiled, x)
            torch.testing.assert_close(found, training_step(module, module, x))
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


def test_ways_are_compiled_apart() -> None:
    compiled = stator.compile(Layers(dropout_in_one_way), backend="aot_eager", options={"capture_control_flow": True})
    with events.record() as log:
        compiled(UP)
    assert [event.backend for event in log if isinstance(event, events.BackendCompiled)] == ["aot_eager"] * 4
    assert not [event for event in log if isinstance(event, events.EagerFallback)]


def test_without_gradients_a_branch_stays_in_the_graph() -> None:
    module = Layers(dropout_in_one_way).eval()
    compiled = stator.compile(module, backend="aot_eager", options={"capture_control_flow": True})
    with events.record() as log, torch.no_grad():
        for x in (UP, -UP):
            torch.testing.assert_close(compiled(x), module(x))
    assert len([event for event in log if isinstance(event, events.BackendCompiled)]) == 1


def test_gradients_need_the_cut(monkeypatch: Any) -> None:
    """Compiled with its graph, a branch gives gradients to parameters of the way that was not taken."""
    monkeypatch.setattr("stator.backends.compilation.has_boundaries", lambda graph: False)
    module = Layers(dropout_in_one_way)
    compiled = stator.compile(module, backend="aot_eager", options={"capture_control_flow": True})
    training_step(module, compiled, UP)
    assert all(each.grad is not None for each in module.second.parameters())
