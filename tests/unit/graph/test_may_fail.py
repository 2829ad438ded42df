"""Which operations may raise while a graph runs: an index on a CPU may, the same on a GPU may not."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from stator.graph.may_fail import may_fail


def graph_of(target, device: str, second_on: str | None = None) -> fx.Graph:
    """cache, places -> target(cache, places), with the examples that a trace would have noted."""
    graph = fx.Graph()
    with FakeTensorMode():
        cache, places = graph.placeholder("cache"), graph.placeholder("places")
        cache.meta["example_value"] = torch.empty(4, 3, device=device)
        places.meta["example_value"] = torch.empty(2, device=second_on or device, dtype=torch.int64)
        made = graph.call_function(target, (cache, places))
        made.meta["example_value"] = torch.empty(2, 3, device=device)
    graph.output(made)
    return graph


@pytest.mark.parametrize("target", [operator.getitem, torch.embedding, torch.index_select, torch.gather])
def test_an_index_raises_on_a_cpu_alone(target) -> None:
    assert may_fail(graph_of(target, "cpu"))
    assert not may_fail(graph_of(target, "cuda"))
    assert may_fail(graph_of(target, "cuda", second_on="cpu"))


def test_other_operations_are_judged_as_ever() -> None:
    assert not may_fail(graph_of(torch.add, "cuda"))
    assert may_fail(graph_of(torch.linalg.solve, "cuda"))
