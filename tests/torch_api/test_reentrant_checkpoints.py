"""torch.utils.checkpoint with use_reentrant=True, with and without gradients of its arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stator

LAYER = torch.nn.Linear(3, 3)


def layer(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(LAYER(x))


def through_checkpoint(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(layer, x, use_reentrant=True) * 2


def result_of(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[object, ...]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = function(x)
    return value.tolist(), value.requires_grad, [(str(each.message), each.filename, each.lineno) for each in caught]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("needs_grad", [True, False])
def test_values_and_warnings(backend: str, recording: bool, needs_grad: bool) -> None:
    compiled = stator.compile(through_checkpoint, backend=backend, fullgraph=True)
    with torch.set_grad_enabled(recording):
        for scale in (1.0, 1.0, -2.0):
            x = torch.full((2, 3), scale, requires_grad=needs_grad)
            assert result_of(compiled, x) == result_of(through_checkpoint, x)
            assert len(result_of(compiled, x)[2]) == (not needs_grad)  # type: ignore[arg-type]
