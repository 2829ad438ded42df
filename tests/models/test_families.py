"""Each family captured as one graph, equal to eager: the first call, a repeat, a second input; with and without grad."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from families import FAMILIES, Built
from results import gradients, same

import stator

NAMES = [pytest.param(name, marks=[pytest.mark.slow] if family.slow else []) for name, family in FAMILIES.items()]


@pytest.fixture(scope="module", params=NAMES)
def built(request: pytest.FixtureRequest) -> Built:
    return FAMILIES[request.param].make()


@pytest.fixture
def compiled(built: Built, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STATOR_STRICT", "1")
    stator.reset()
    return stator.compile(built.model, backend="eager", fullgraph=True)


@torch.no_grad()
def test_equals_eager_without_grad(built: Built, compiled: Any) -> None:
    for inputs in (built.first, built.first, built.second):
        same(built.model(**copy.deepcopy(inputs)), compiled(**copy.deepcopy(inputs)))


def test_equals_eager_with_grad(built: Built, compiled: Any) -> None:
    for inputs in (built.first, built.first, built.second):
        expected, result = built.model(**copy.deepcopy(inputs)), compiled(**copy.deepcopy(inputs))
        same(expected, result)
        same(gradients(expected, built.model), gradients(result, built.model), "gradient")


@torch.no_grad()
def test_one_graph_serves_equal_shapes(built: Built) -> None:
    """A second input of the same shapes needs no second graph."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    stator.reset()
    compiled = stator.compile(built.model, backend=backend, fullgraph=True)
    for inputs in (built.first, built.first, built.second):
        compiled(**copy.deepcopy(inputs))
    assert len(graphs) == 1
