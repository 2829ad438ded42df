"""Small training programs with traps, each run three times beside eager: values, gradients, buffers, random streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import World, compare

PROGRAMS: list[Callable[[], World]] = []


def program(make: Callable[[], World]) -> Callable[[], World]:
    PROGRAMS.append(make)
    return make


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bad_index(step: int) -> torch.Tensor:
    return torch.tensor([0, 77 if step == 1 else 1])


# ---------------------------------------------------------------------- statistics of a step that fails


@program
def statistics_are_updated_once_where_the_graph_fails() -> World:
    norm = nn.BatchNorm1d(4)

    def step(x: Any, index: Any) -> Any:
        return F.batch_norm(x, norm.running_mean, norm.running_var, training=True)[index]
    return World(step, lambda i: (values(3, 4, seed=i), bad_index(i)), lambda: norm)


@program
def instance_statistics_are_updated_once_where_the_graph_fails() -> World:
    norm = nn.InstanceNorm1d(4, track_running_stats=True)

    def step(x: Any, index: Any) -> Any:
        return norm(x)[index]
    return World(step, lambda i: (values(3, 4, 5, seed=i), bad_index(i)), lambda: norm)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_equal_to_eager(make: Callable[[], World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compare(make, 3)
