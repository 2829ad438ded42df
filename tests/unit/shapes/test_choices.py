"""An expression that is one of several, by a condition, is computed in the graph."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as fs

import stator
from stator import events
from stator.shapes.symbol_nodes import SymbolNodes
from tests.comparison import call, same_as_eager


@pytest.mark.parametrize("number", [0, 2, 3, 4, 9])
def test_piecewise(number: int) -> None:
    shape_env, graph = ShapeEnv(), fx.Graph()
    nodes = SymbolNodes(graph, shape_env)
    argument = graph.placeholder("n")
    argument.meta["example_value"] = symbol = shape_env.create_unbacked_symint()
    n = symbol.node.expr
    nodes.definitions[n] = (argument, ())
    expression = sympy.Piecewise((n * 2, n > 3), (n - 1, n > 2), (n + 7, True), evaluate=False)
    graph.output(nodes.node_of(shape_env.create_symintnode(expression, hint=None)))
    computed = fx.GraphModule(torch.nn.Module(), graph)(number)
    assert computed == (number * 2 if number > 3 else number - 1 if number > 2 else number + 7)


@pytest.mark.parametrize(("rounded", "by"), [(fs.FloorToInt, math.floor), (fs.CeilToInt, math.ceil),
                                             (fs.TruncToInt, math.trunc), (fs.RoundToInt, round)])  # fmt: skip
def test_roundings(rounded: Any, by: Any) -> None:
    shape_env, graph = ShapeEnv(), fx.Graph()
    nodes = SymbolNodes(graph, shape_env)
    argument = graph.placeholder("n")
    argument.meta["example_value"] = symbol = shape_env.create_unbacked_symint()
    nodes.definitions[symbol.node.expr] = (argument, ())
    quarter = fs.FloatTrueDiv(fs.ToFloat(symbol.node.expr), sympy.Float(4.0))
    graph.output(nodes.node_of(shape_env.create_symintnode(rounded(quarter), hint=None)))
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert [module(number) for number in range(-9, 10)] == [by(number / 4) for number in range(-9, 10)]


def compared_with_a_choice(x: Any, n: int) -> Any:
    limit = bool(n << 2) + True
    count = 2 + int(x[0].item() > limit)
    return x if count == 2 else x * count


def test_a_comparison_with_a_choice_counts_as_a_number() -> None:
    """sympy makes ITE of it, for which torch has no handler."""
    same_as_eager(compared_with_a_choice, *(call(torch.full((3,), x), n) for n in (1, 0, 3) for x in (1.0, 2.0, 3.0)),
                  dynamic=True, fullgraph=False)


@pytest.mark.parametrize("chosen", [lambda t: min(1, t), lambda t: max(t, 1)], ids=["min", "max"])
def test_extremes_of_ints_and_floats(chosen: Any) -> None:
    """Which one it is becomes a guard, and its type is eager's."""
    def program(x: torch.Tensor, n: int) -> Any:
        best = chosen((n - 1) / 4)
        return x * best, type(best), best

    compiled = stator.compile(program, fullgraph=True)
    with events.record() as log:
        for n in range(2, 12):
            assert str(compiled(torch.ones(2), n)) == str(program(torch.ones(2), n))
    assert sum(isinstance(each, events.CaptureFinished) for each in log) <= 4
