"""A layout changed through one name and read through another: compiled with two tensors, then called with one twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.graph.metadata.input_layouts import EntryLayouts

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "resize_": lambda x, y: (y.resize_(2), x.shape)[1],
    "set_": lambda x, y: (y.set_(torch.zeros(3)), x.numel())[1],
    "unsqueeze_": lambda x, y: (y.unsqueeze_(0), x.dim())[1],
    "t_": lambda x, y: (y.t_(), x.stride())[1],
    "t_ twice": lambda x, y: (y.t_(), x.stride(), y.t_())[1],
    "overload": lambda x, y: (torch.ops.aten.squeeze_.dim(y, 0), x.ndim)[1],
    "out=": lambda x, y: (torch.add(torch.ones(5), 1, out=y[:0]), x.shape, torch.neg(torch.ones(2, 3), out=y.resize_(0)), x.shape)[1::2],
    "data": lambda x, y: (setattr(y, "data", torch.ones(3)), x.shape)[1],
}  # fmt: skip


def pair(shared: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors that differ in nothing but being one: neither is a view, which is guarded apart."""
    tensor = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    return tensor, tensor if shared else tensor + 1


def outcome(subject: Callable[..., Any], shared: bool) -> tuple[Any, ...]:
    args = pair(shared)
    return subject(*args), [(each.shape, each.stride(), each.tolist()) for each in args]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_of_layout_is_seen(name: str, first: bool, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = stator.compile(program, backend=backend)
    for shared in (first, not first, first):
        assert outcome(compiled, shared) == outcome(program, shared)


@pytest.mark.parametrize("name", ["resize_", "set_", "unsqueeze_", "t_", "overload"])
def test_without_the_guard_it_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntryLayouts, "touched", lambda self: [])
    program = PROGRAMS[name]
    compiled = stator.compile(program, backend="eager")
    outcome(compiled, False)
    assert outcome(compiled, True) != outcome(program, True)
