"""Slices whose bounds are tensors: the numbers are computed by operators of the graph, without kernels for the CPU."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import fx

import stator
from tests.unit.shapes.counting import run

BOUNDS = (0, 2, 5, 6, 9, -1, -6, -9)


def between(x, start, stop):
    return x[:, start:stop] * 2, x[:, :stop].sum(), x[:, start:].shape


def around(x, end, _):
    y = x.clone()
    y[:, end - 1:end + 1] = 7.0
    return y, x[:, 2 + end:], x[:, :end - 3]


def written_between(x, end, other):
    after = end + 2
    end += 1
    taken = x[:, end:after].clone()
    after -= 1
    return taken, x[:, end:after], end


def an_alias_is_written(x, end, other):
    after = end + 2
    end.view(1).add_(other)
    return x[:, :after], x[:, :end]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [between, around, written_between, an_alias_is_written])
def test_bounds_as_python_reads_them(fn, backend):
    x = torch.arange(12.0).view(2, 6)
    calls = [(x, torch.tensor(start), torch.tensor(stop)) for start, stop in itertools.product(BOUNDS, BOUNDS)]
    run(fn, calls, backend=backend, fullgraph=True)


def test_sums_wrap_around_as_tensors_do():
    largest = torch.tensor(torch.iinfo(torch.int64).max)
    run(around, [(torch.ones(2, 6), torch.tensor(3), None), (torch.ones(2, 6), largest, None),
                 (torch.ones(2, 6), -largest, None)], fullgraph=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_sums_of_small_integers_wrap_around_too(dtype):
    def taken(x, end):
        return x[: end + 100], x[: end - 120]

    run(taken, [(torch.arange(400), torch.tensor(start, dtype=dtype)) for start in (20, 101, 110)], fullgraph=True)


def test_a_compiler_meets_no_arithmetic_on_the_cpu():
    """The nodes that a result depends on: Inductor would make a kernel for each tensor among the bounds."""
    used: list[fx.Node] = []

    def backend(module, examples):
        module.graph.eliminate_dead_code()
        used.extend(module.graph.nodes)
        return module.forward

    def cached(x, end, cache):
        stop = end + x.shape[0]
        cache[end:stop] = x
        return cache[:stop].sum(0)

    compiled = stator.compile(cached, backend=backend, fullgraph=True)
    assert torch.equal(compiled(torch.ones(3, 4), torch.tensor(1), torch.zeros(10, 4)), torch.full((4,), 3.0))
    made = [node for node in used if node.op not in ("placeholder", "output")
            and isinstance(node.meta.get("example_value"), torch.Tensor) and node.meta["example_value"].dim() == 0]
    assert not made
    assert {"slice_bound", "item_of_sum"} <= {str(node.target).split(".")[1] for node in used
                                              if str(node.target).startswith("stator.")}
