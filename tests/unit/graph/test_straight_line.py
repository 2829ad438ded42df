"""The eager backend's own functions of a graph: layers that were recorded again are one function, called for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator.graph.fx import graph_modules


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + torch.relu(self.linear(x)) * 2.0 - x.sigmoid() / 3)


class Pair(Layer):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        made = super().forward(x)
        return made, made.sum(-1, keepdim=True)


class Stack(nn.Module):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self.layers = nn.ModuleList(cls() for _ in range(5))

    def forward(self, x: torch.Tensor) -> Any:
        x, sums = x * 1, []
        for layer in self.layers:
            found = layer(x)
            x = found[0] if type(found) is tuple else found
            sums.append(found[1] if type(found) is tuple else 0)
        return x, sums[0] + sums[-1]


@pytest.mark.parametrize("cls", [Layer, Pair])
def test_a_stack_of_layers(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    play_line = graph_modules.play_line
    monkeypatch.setattr(graph_modules, "play_line", lambda *args: lines.append(play_line(*args)) or lines[-1])
    torch.manual_seed(0)
    model, x = Stack(cls), torch.randn(2, 4)
    compiled = stator.compile(model, backend="eager", fullgraph=True, options={"replay": True})
    for _ in range(2):
        with torch.no_grad():
            wanted, made = model(x), compiled(x)
        assert torch.equal(made[0], wanted[0]) and torch.equal(torch.as_tensor(made[1]), torch.as_tensor(wanted[1]))
    assert len(lines) >= 3, "most layers are calls of the one function"
    assert len({line.partition("= ")[2].partition("(")[0] for line in lines}) == 1
