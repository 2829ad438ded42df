"""Lazy modules: the call that initialises them runs as it is, also under fullgraph, and the next one is captured."""

from __future__ import annotations

from typing import Any

import torch

import stator
from stator import events


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.ReLU(), torch.nn.LazyBatchNorm1d())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def graphs_of(function: Any, *args: Any) -> tuple[Any, int, int]:
    """The result of a call, and how many graphs and breaks it makes."""
    with events.record() as log:
        value = function(*args)
    return (value, sum(isinstance(event, events.BackendCompiled) for event in log),
            sum(isinstance(event, events.GraphBreak) for event in log))


def test_the_second_call_is_captured_whole() -> None:
    torch.manual_seed(0)
    eager, x = Net(), torch.arange(6.0).view(2, 3)
    expected = [eager(x), eager(x)]
    for fullgraph in (True, False):
        torch.manual_seed(0)
        module = Net()
        compiled = stator.compile(module, backend="eager", options={"strict": True}, fullgraph=fullgraph)
        for number, wanted in enumerate(expected):
            value, graphs, breaks = graphs_of(compiled, x)
            assert torch.equal(value, wanted) and (graphs, breaks) == (number, 0)
        assert type(module.inner[0]) is torch.nn.Linear and module.inner[0].weight.shape == (4, 3)


def test_a_lazy_module_that_came_later_is_initialised_in_its_call() -> None:
    layers = [torch.nn.Linear(3, 3)]

    def program(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x

    compiled = stator.compile(program, backend="eager", options={"strict": True}, fullgraph=True)
    x = torch.ones(2, 3)
    assert graphs_of(compiled, x)[1:] == (1, 0)
    layers.append(torch.nn.LazyLinear(5))
    assert graphs_of(compiled, x)[1:] == (0, 0)
    value, graphs, breaks = graphs_of(compiled, x)
    assert torch.equal(value, program(x)) and (graphs, breaks) == (1, 0) and value.shape == (2, 5)
