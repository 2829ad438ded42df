"""`x + 1` through every layer: if this fails, look here first."""

from __future__ import annotations

import pytest
import torch

import stator


@pytest.fixture(autouse=True)
def forget_everything():
    stator.reset()
    yield
    stator.reset()


class Counting:
    """A backend that counts what it is asked to compile and to run."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.runs = 0

    def __call__(self, graph, example_inputs):
        self.graphs.append(graph)

        def run(*inputs):
            self.runs += 1
            return graph.forward(*inputs)

        return run


def add_one(x):
    return x + 1


def test_first_call_captures_and_second_call_hits():
    backend = Counting()
    compiled = stator.compile(add_one, backend=backend, fullgraph=True)
    for value in (torch.zeros(3), torch.ones(3)):
        assert torch.equal(compiled(value), value + 1)
    assert len(backend.graphs) == 1 and backend.runs == 2


def test_graph_holds_the_addition():
    backend = Counting()
    stator.compile(add_one, backend=backend, fullgraph=True)(torch.zeros(3))
    kinds = [node.op for node in backend.graphs[0].graph.nodes]
    assert kinds == ["placeholder", "call_function", "output"]


def test_other_dtype_is_captured_again():
    backend = Counting()
    compiled = stator.compile(add_one, backend=backend, fullgraph=True)
    assert compiled(torch.zeros(3)).dtype == torch.float32
    assert compiled(torch.zeros(3, dtype=torch.int64)).dtype == torch.int64
    assert len(backend.graphs) == 2


def test_side_effect_is_written_back():
    seen = []

    def remember(x):
        seen.append(x.shape[0])
        return x * 2

    compiled = stator.compile(remember, backend="eager", fullgraph=True)
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert seen == [2, 2]


def test_module_is_captured():
    backend = Counting()
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval()
    compiled = stator.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(4, 2)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
    assert len(backend.graphs) == 1
    assert list(compiled.state_dict()) == list(model.state_dict())


def test_wrong_backend_says_what_is_accepted():
    with pytest.raises(stator.OptionError, match="eager"):
        stator.compile(add_one, backend="no such backend")


def test_explain_shows_what_was_captured():
    explained = stator.explain(add_one)(torch.zeros(3))
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)
    assert explained.guards and all(isinstance(guard.text(), str) for guard in explained.guards)
    assert explained.residuals and "def " in explained.residuals[0]
