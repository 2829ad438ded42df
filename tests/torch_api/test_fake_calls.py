"""Calls of compiled functions under a FakeTensorMode: shapes without values, as in eager."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import stator
from stator import events


def program(x: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
    kept.append(x.sin())
    return torch.cat([x, kept[-1]]) if x.shape[0] > 3 else x @ x.T


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("symbolic", [True, False])
def test_as_in_eager(fullgraph: bool, symbolic: bool) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=fullgraph)
    for rows in (2, 2, 5):
        found = []
        for call in (program, compiled):
            with FakeTensorMode(shape_env=ShapeEnv() if symbolic else None) as mode:
                kept: list[torch.Tensor] = []
                value = call(mode.from_tensor(torch.ones(rows, 3)), kept)
            assert type(value) is FakeTensor and type(kept[0]) is FakeTensor
            found.append((str(value.shape), str(kept[0].shape), value.dtype))
        assert found[0] == found[1]
    with events.record() as log:
        x = torch.ones(2, 3)
        assert torch.equal(compiled(x, []), program(x, []))
        assert torch.equal(compiled(x, []), program(x, []))
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1


def test_other_modes_are_refused() -> None:
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {}))

    with Counting(), pytest.raises(stator.Unsupported, match="a TorchDispatchMode is active"):
        stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2, 3), [])
