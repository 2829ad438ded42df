"""Names in the graph: what FX generates must run, whatever the program calls its arguments."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import stator
from stator.graph.fx.nodes import input_name


def test_an_argument_named_self_does_not_shadow_the_module() -> None:
    def program(self: Any) -> Any:
        return self + 1

    assert input_name("self") != "self"
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("text", ["x", "self.layers[0].weight", "d['a b']", "0", "*"])
def test_names_are_identifiers(text: str) -> None:
    assert input_name(text).isidentifier()


def test_deepcopy_of_a_tensor_is_captured() -> None:
    def program(x: Any) -> Any:
        return copy.deepcopy(x * 2) + 1

    explained = stator.explain(program)(torch.ones(3))
    assert explained.graph_break_count == 0
    compiled = stator.compile(program, backend="eager")
    assert torch.equal(compiled(torch.ones(3)), program(torch.ones(3)))


def test_keyword_defaults_that_vary_are_one_input_each() -> None:
    def scaled(x: torch.Tensor, k: int = 1, *, w: int = 2) -> torch.Tensor:
        return x * k + w

    def program(x: torch.Tensor) -> Any:
        return scaled(x), scaled(x, 5), scaled.__kwdefaults__

    graphs: list[Any] = []
    compiled, x = stator.compile(program, backend=lambda gm, inputs: graphs.append(gm) or gm), torch.ones(2)
    for k, w in ((1, 2), (4, 2), (4, 9), (4, 10), (5, 11)):
        scaled.__defaults__, scaled.__kwdefaults__ = (k,), {"w": w}
        made, expected = compiled(x), program(x)
        assert torch.equal(made[0], expected[0]) and torch.equal(made[1], expected[1]) and made[2] is expected[2]
    for graph in graphs:
        targets = [node.target for node in graph.graph.nodes if node.op == "placeholder"]
        assert len(set(targets)) == len(targets)
