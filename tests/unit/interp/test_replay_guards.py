"""The guards of a replayed layer: a change in it is seen by the next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from tests.replayed_layers import DEPTH, Layer, Stack, X, agree, counting, stack


def other_hook(model: Any) -> None:
    model.layers[3].register_forward_hook(lambda module, args, out: out * 2)


def other_norm(model: Any) -> None:
    model.layers[3].norm.eps = 0.25


def other_scale(model: Any) -> None:
    model.layers[3].scale = 7.0


def other_parameter(model: Any) -> None:
    model.layers[3].first.weight = nn.Parameter(torch.ones(8, 8))


def other_values(model: Any) -> None:
    with torch.no_grad():
        model.layers[3].first.weight.fill_(0.5)


def other_child(model: Any) -> None:
    model.layers[3].second = nn.Sequential(nn.Linear(8, 8), nn.Tanh())


def other_forward(model: Any) -> None:
    model.layers[3].forward = lambda x: x - 1


class Shifted(Layer):
    idx = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.idx


def other_class(model: Any) -> None:
    model.layers[3].__class__ = Shifted
    model.layers[3].idx = 4


def tied(model: Any) -> None:
    model.layers[3].first.weight = model.layers[1].first.weight


def in_training(model: Any) -> None:
    model.layers[3].norm = nn.BatchNorm1d(8)


def replaced_layer(model: Any) -> None:
    model.layers[3] = Layer()


def data_swapped(model: Any) -> None:
    model.layers[3].second.weight.data = torch.eye(8)


@pytest.mark.parametrize("change", [other_hook, other_norm, other_scale, other_parameter, other_values, other_child,
                                    other_forward, other_class, tied, in_training, replaced_layer, data_swapped])
def test_a_change_in_a_replayed_layer_is_seen(change: Callable[[Any], None]) -> None:
    compiled, model = agree(stack(), X, played=DEPTH - 1)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))
        change(model)
        torch.testing.assert_close(compiled(X), model(X))
        torch.testing.assert_close(compiled(X), model(X))


class Settings:
    scale = 2.0


class Scaled(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings()
        self.settings.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.settings.scale


class Writes(Stack):
    def forward(self, x: torch.Tensor, other: Settings) -> torch.Tensor:  # type: ignore[override]
        other.scale = 3.0
        return super().forward(x)


def test_what_is_written_is_not_what_a_replayed_layer_reads() -> None:
    model = Writes([Scaled() for _ in range(DEPTH)]).eval()
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad(), counting(Scaled) as found:
        compiled(X, Settings())
        assert len(found) == DEPTH - 1
        mine = model.layers[2].settings
        made = compiled(X, mine)
        mine.scale = 2.0
        assert torch.equal(made, model(X, mine))
