"""Graphs that are sent to a worker are found in AOTAutograd's cache under the key that the sender computes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator.backends import compiled_graphs
from stator.backends.background import graph_pickling, jobs
from stator.backends.compilation import compile_graph
from tests.unit.backends.regions.test_regions import Block, Stack


class Stopped(BaseException):
    """Ends a compilation before it begins."""


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    cache: Any = pytest.importorskip("torch._functorch._aot_autograd.autograd_cache")
    find, found = cache.autograd_cache_key, []

    def find_and_stop(*args: Any, **keywords: Any) -> Any:
        found.append(find(*args, **keywords)[0])
        raise Stopped

    monkeypatch.setattr(cache, "autograd_cache_key", find_and_stop)
    return found


def branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@pytest.mark.parametrize(("program", "around", "settings"), [
    (nn.Sequential(nn.Linear(16, 8), nn.GELU()), contextlib.nullcontext, {}),
    (nn.Sequential(nn.Linear(16, 8), nn.GELU()), contextlib.nullcontext, {"dynamic": True}),
    (nn.Sequential(nn.Linear(16, 8), nn.GELU()), torch.inference_mode, {}),
    (Stack([Block() for _ in range(5)]), torch.no_grad, {}),
], ids=["training", "dynamic", "inference mode", "pieces"])
def test_both_sides_have_one_key(program: Any, around: Any, settings: dict[str, Any], keys: list[str],
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    pack = jobs.packed

    def require(gm: Any, inputs: Any, settings: Any, grad_enabled: bool) -> None:
        sent.append(pack(gm, list(inputs), settings, grad_enabled, graph_pickling.ambient_state()))

    monkeypatch.setattr(compiled_graphs, "require_compiled", require)
    compiled = stator.compile(program, options={"start": "eager"}, isolate_recompiles=True, **settings)
    x = torch.randn(2, 5, 16)
    with around():
        torch.testing.assert_close(compiled(x), program(x))
        with pytest.raises(Stopped):
            compiled(x)
    gm, inputs, received, grad_enabled, mode, inference = graph_pickling.unpacked(sent[0])
    with torch.inference_mode() if inference else contextlib.nullcontext(), pytest.raises(Stopped):
        compile_graph(gm, inputs, received, mode, grad_enabled)
    assert len(keys) == 2 and keys[0] == keys[1]


def test_inner_graphs_are_sent() -> None:
    kept: list[bytes] = []

    def keep(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        kept.append(graph_pickling.packed(gm, inputs, compiled_graphs.Settings(), False, []))
        return gm.forward

    x = torch.randn(3)
    with torch.no_grad():
        torch.testing.assert_close(stator.compile(branch, backend=keep)(x), branch(x))
    gm = graph_pickling.unpacked(kept[0])[0]
    assert torch.ops.higher_order.cond in [node.target for node in gm.graph.nodes]
    for value in (x, x.abs(), -x.abs()):
        torch.testing.assert_close(gm(value)[0], branch(value))


def test_tensors_of_the_program_are_not_sent() -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    next(iter(gm.graph.nodes)).meta["example_value"] = torch.ones(3)
    with pytest.raises(Exception, match="holds a tensor of the program"):
        graph_pickling.packed(gm, [], compiled_graphs.Settings(), True, [])
