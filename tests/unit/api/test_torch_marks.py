"""torch's own decorators count, whether or not torch.compile is Stator's."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch._dynamo

import stator
from stator import events


@torch._dynamo.disable
def disabled(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.compiler.disable(reason="as a test")
def disabled_for_a_reason(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.compiler.allow_in_graph
def allowed(x: torch.Tensor) -> torch.Tensor:
    return x.sin().cos()


@torch.compiler.assume_constant_result
def constant() -> int:
    return 5


def breaks_and_nodes(function: Any, *args: Any) -> tuple[Any, list[str], list[Any]]:
    nodes: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        nodes.extend(node.target for node in graph.graph.nodes if node.op.startswith("call"))
        return graph.forward

    with events.record() as log:
        value = stator.compile(function, backend=backend)(*args)
    return value, [event.code for event in log if isinstance(event, events.GraphBreak)], nodes


def test_disable() -> None:
    for function in (disabled, disabled_for_a_reason):
        value, codes, _ = breaks_and_nodes(lambda x, f=function: f(x) * 2, torch.ones(2))
        assert value.tolist() == [4, 4] and codes == ["SB010"]


def test_graph_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    value, codes, nodes = breaks_and_nodes(function, torch.ones(2))
    assert value.tolist() == [4, 4] and codes == ["SB009"] and len(nodes) == 2


def test_allow_in_graph() -> None:
    value, codes, nodes = breaks_and_nodes(lambda x: allowed(x) + 1, torch.ones(2))
    assert torch.equal(value, allowed(torch.ones(2)) + 1) and codes == [] and allowed in nodes


def test_disallow_in_graph() -> None:
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        value, codes, _ = breaks_and_nodes(lambda x: torch.sub(x + 1, 1) * 2, torch.ones(2))
    finally:
        torch._dynamo.allow_in_graph(torch.sub)
    assert value.tolist() == [2, 2] and codes == ["SB010"]


def test_assume_constant_result() -> None:
    value, codes, _ = breaks_and_nodes(lambda x: x + constant(), torch.ones(2))
    assert value.tolist() == [6, 6] and codes == []


def test_what_is_assumed_constant_is_asked_once() -> None:
    asked: list[int] = []

    @torch.compiler.assume_constant_result
    def counted() -> int:
        asked.append(1)
        return len(asked)

    @functools.wraps(counted)
    def around() -> int:  # it carries the mark, and is a function of the program
        return counted() * 10

    compiled = stator.compile(lambda x: (x + counted(), x * around()), backend="eager", fullgraph=True)
    first = compiled(torch.ones(2))
    met = len(asked)
    assert first[0].tolist() == [2.0, 2.0] and met >= 1
    assert [each.tolist() for each in compiled(torch.ones(2))] == [each.tolist() for each in first]
    assert len(asked) == met, "nobody asks again"


def test_marks_on_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.mark_static(x, 0)
        return x + 1

    value, codes, _ = breaks_and_nodes(function, torch.ones(3))
    assert value.tolist() == [2, 2, 2] and codes == []
