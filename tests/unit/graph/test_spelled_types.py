"""Classes as arguments of operations: FX's own code can say what the graph holds."""

from __future__ import annotations

import operator
from typing import Any

import torch

import stator
from stator import events


def run_by_fx(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    return torch.fx.GraphModule(graph, graph.graph).forward


def test_builtin_and_tensor_types() -> None:
    def program(x: torch.Tensor) -> Any:
        half = x.type(torch.HalfTensor)
        return (x * 5).to(bool).to(float).to(int) + 8, half, x.type(half.type()), torch.ones(2, dtype=int)

    x = torch.tensor([0.5, 0.0, -2.0])
    with events.record() as log:
        found = stator.compile(program, backend=run_by_fx, fullgraph=True)(x)
    assert not [event for event in log if isinstance(event, events.EagerFallback)]  # as there is where the graph raises
    for mine, theirs in zip(found, program(x), strict=True):
        assert mine.dtype == theirs.dtype and torch.equal(mine, theirs)


def test_a_function_of_the_users_gets_the_class() -> None:
    def cast(x: torch.Tensor, kind: type) -> torch.Tensor:
        assert kind is int
        return x + 1

    cast.__module__ = "torch_of_the_user"
    stator.allow_in_graph(cast)
    x = torch.ones(2)
    assert torch.equal(stator.compile(lambda x: cast(x, int), backend="eager", fullgraph=True)(x), x + 1)


def test_a_number_where_a_tensor_was() -> None:
    def program(x: Any, y: Any) -> Any:
        return operator.pos(x) * +y

    compiled = stator.compile(program, backend="eager", fullgraph=True, dynamic=True)
    calls = ((torch.ones(4), 1), (1, torch.ones(4)), (-1, -1), (-1.1, 1.1), (True, False), (torch.ones(4), 1.1))
    for args in calls:
        found, expected = compiled(*args), program(*args)
        assert type(found) is type(expected)
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))


def test_inside_torch_jit_trace() -> None:
    def opaque(graph: Any, inputs: Any) -> Any:  # as of a compiler, whose code torch.jit.trace cannot look into
        return lambda *args: tuple(torch.from_numpy(each.numpy()) for each in graph(*args))

    compiled = stator.compile(lambda x: x.reshape(x.shape[0], -1) + 1, backend=opaque)
    for _ in range(2):  # nothing is compiled yet, and something that would fit
        traced = torch.jit.trace(compiled, torch.ones(2, 3))
        for size in (2, 5):
            assert torch.equal(traced(torch.ones(size, 3)), torch.ones(size, 3) + 1)
        with events.record() as log:
            assert torch.equal(compiled(torch.ones(2, 3)), torch.ones(2, 3) + 1)
    assert not log
