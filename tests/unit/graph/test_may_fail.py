"""Which operations may raise while a graph runs: an index on a CPU may, the same on a GPU may not."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from stator.graph.analysis.may_fail import may_fail


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


def written_by_index(source_of: Callable[[fx.Graph, fx.Node, fx.Node], fx.Node]) -> fx.Graph:
    """cache.index_copy_(0, places, source), on a GPU, where overlapping memory is what still raises."""
    graph = fx.Graph()
    with FakeTensorMode():
        cache, other, places = (graph.placeholder(name) for name in ("cache", "other", "places"))
        cache.meta["example_value"] = torch.empty(3, 3, device="cuda")
        other.meta["example_value"] = torch.empty(3, 3, device="cuda")
        places.meta["example_value"] = torch.empty(3, device="cuda", dtype=torch.int64)
        source = source_of(graph, cache, other)
        for node in graph.nodes:
            node.meta.setdefault("example_value", torch.empty(3, 3, device="cuda"))
        written = graph.call_method("index_copy_", (cache, 0, places, source))
        written.meta["example_value"] = cache.meta["example_value"]
    graph.output(written)
    return graph


def test_a_view_of_new_memory_overlaps_with_nothing() -> None:
    def computed(graph: fx.Graph, cache: fx.Node, other: fx.Node) -> fx.Node:
        return graph.call_method("transpose", (graph.call_function(torch.relu, (cache,)), 0, 1))

    assert not may_fail(written_by_index(computed))
    assert not may_fail(written_by_index(lambda graph, cache, other: other))
    assert not may_fail(written_by_index(lambda graph, cache, other: graph.call_method("t", (other,))))


def test_what_lies_in_the_memory_that_is_written_may_overlap() -> None:
    def turned(graph: fx.Graph, cache: fx.Node, other: fx.Node) -> fx.Node:
        return graph.call_method("t", (cache,))

    assert may_fail(written_by_index(turned))
    assert may_fail(written_by_index(lambda graph, cache, other: cache))
    other = written_by_index(lambda graph, cache, other: graph.call_method("t", (other,)))
    assert may_fail(other, shared=frozenset({"cache", "other"}))
    assert not may_fail(other, shared=frozenset({"other", "places"}))


def test_repeats_raise_where_their_number_is_data() -> None:
    graph = fx.Graph()
    with FakeTensorMode():
        x, times = graph.placeholder("x"), graph.placeholder("times")
        x.meta["example_value"], times.meta["example_value"] = torch.empty(4), torch.empty(4, dtype=torch.int64)
        made = graph.call_method("repeat_interleave", (x, 2))
        made.meta["example_value"] = torch.empty(8)
        assert not may_fail(graph)
        data = graph.call_method("repeat_interleave", (x, times))
        data.meta["example_value"] = torch.empty(8)
    assert may_fail(graph)


def test_kernels_refuse_dtypes_that_rules_for_fakes_take() -> None:
    def node(target, *dtypes: torch.dtype) -> bool:
        graph = fx.Graph()
        given = [graph.placeholder(f"x{number}") for number in range(len(dtypes))]
        with FakeTensorMode():
            for each, dtype in zip(given, dtypes, strict=True):
                each.meta["example_value"] = torch.ones(2, 2, dtype=dtype)
            made = graph.call_function(target, tuple(given))
            made.meta["example_value"] = torch.ones(2, 2)
        graph.output(made)
        return may_fail(graph)

    assert node(torch.relu, torch.bool) and not node(torch.relu, torch.float32) and not node(torch.relu, torch.int64)
    assert node(torch.mm, torch.float32, torch.float64) and not node(torch.mm, torch.float64, torch.float64)
    assert node(torch.std, torch.int64) and not node(torch.sum, torch.int64)
    assert node(operator.and_, torch.float32, torch.float32) and not node(operator.and_, torch.bool, torch.int64)
