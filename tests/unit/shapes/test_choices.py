"""An expression that is one of several, by a condition, is computed in the graph."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator.shapes.nodes import SymbolNodes


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
