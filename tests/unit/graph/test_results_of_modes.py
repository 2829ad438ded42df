"""Attributes of results that the tracer reads for itself make no nodes."""

from __future__ import annotations

import pytest
import torch

import stator


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_results_whose_size_is_data(backend: str) -> None:
    def scaled(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        found = torch.unique(values)
        return torch.squeeze(torch.reshape(found, [1])) * x

    compiled = stator.compile(scaled, backend=backend, fullgraph=True)
    x = torch.tensor(3.0, requires_grad=True)
    for values in (torch.ones(1), torch.ones(4), torch.full((2,), 5.0)):
        assert torch.equal(compiled(x, values), scaled(x, values))
    compiled(x, torch.ones(3)).backward()
    assert x.grad is not None and x.grad.item() == 1


def test_no_node_reads_a_layout() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    def scaled(values: torch.Tensor) -> torch.Tensor:
        return torch.unique(values) * 2

    assert torch.equal(stator.compile(scaled, backend=backend)(torch.ones(3)), scaled(torch.ones(3)))
    targets = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert targets and not any("layout" in target for target in targets)
