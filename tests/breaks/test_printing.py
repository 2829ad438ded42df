"""stator.print prints from inside the graph, forward and, on request, gradients in the backward pass."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch

import stator

EXPECTED = """y tensor([2., 4.]) 3
again tensor([2., 4.])
z tensor(20.)
"""


def program(x):
    y = x * 2
    stator.print("y", y, 3)
    y = stator.print("again", y, gradient=True)
    z = (y * y).sum()
    stator.print("z", z)
    return z


def run(function: Any, backward: bool) -> tuple[str, Any]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        value = function(x)
        if backward:
            value.backward()
    return out.getvalue(), x.grad


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "inductor"])
def test_prints_forward_and_backward(backend: str | None) -> None:
    function = program if backend is None else stator.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        text, gradient = run(function, backward=True)
        assert text == EXPECTED + "gradient of again tensor([4., 8.])\n"
        assert gradient.equal(torch.tensor([8.0, 16.0]))
    assert run(function, backward=False)[0] == EXPECTED


def test_it_is_a_node_of_the_graph() -> None:
    found = stator.explain(program)(torch.ones(2))
    assert found.graph_count == 1
    assert "stator.print" in str([str(node.target) for node in found.graphs[0].graph.nodes])


def test_several_tensors_and_separators() -> None:
    def several(a, b):
        a, b = stator.print(a, b, sep=" | ", end=";\n", gradient=True)
        return (a * b).sum()

    one, two = torch.ones(1, requires_grad=True), torch.full((1,), 2.0, requires_grad=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        stator.compile(several, backend="aot_eager", fullgraph=True)(one, two).backward()
    assert out.getvalue().startswith("tensor([1.]) | tensor([2.]);\n")
    assert sorted(out.getvalue().splitlines()[1:]) == ["gradient tensor([1.])", "gradient tensor([2.])"]
