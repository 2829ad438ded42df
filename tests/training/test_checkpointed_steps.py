"""Whole steps through checkpoints, beside eager: in one graph, and compiled so that values are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import stator
from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, values

CHECKPOINTED = Register()


class Block(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4))

    def forward(self, x: Any) -> Any:
        return x + checkpoint(self.inner, x, use_reentrant=self.reentrant)


def descent(reentrant: bool, loss_of: Callable[[Any, Any], Any] = F.mse_loss, passes: int = 1,
            repeats: int = 1) -> World:
    model = nn.Sequential(nn.Linear(4, 4), Block(reentrant), Block(reentrant), nn.Linear(4, 1))
    optimiser = torch.optim.AdamW(model.parameters(), 0.01)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        for part, aim in zip(x.chunk(passes), y.chunk(passes), strict=True):
            loss = loss_of(model(part), aim) / passes
            for number in range(repeats):
                loss.backward(retain_graph=number + 1 < repeats)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss, norm
    return World(step, batch, look_at(model, optimiser))


@CHECKPOINTED
def not_reentrant() -> World:
    return descent(False)


@CHECKPOINTED
def reentrant() -> World:
    return descent(True)


@CHECKPOINTED
def several_passes() -> World:
    return descent(False, passes=3)


@CHECKPOINTED
def two_passes_over_one_graph() -> World:
    return descent(False, repeats=2)


@CHECKPOINTED
def a_hook_on_a_leaf() -> World:
    world = descent(False)
    model = world.function.__closure__[1].cell_contents  # type: ignore[attr-defined]
    assert isinstance(model, nn.Sequential)
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    return world


@CHECKPOINTED
def a_sequence() -> World:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)])
    optimiser = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        loss = checkpoint_sequential(model, 2, x, use_reentrant=False).pow(2).sum()
        loss.backward()
        optimiser.step()
        return loss.detach()
    return World(step, lambda i: (values(3, 4, seed=i),), look_at(model, optimiser))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", CHECKPOINTED, ids=lambda make: make.__name__)
def test_equal_to_eager_in_one_graph(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5)
    assert report.causes == []
    assert not [each for each in report.fallbacks if "as it is" in each]


def test_values_are_computed_again() -> None:
    """A compiler gets the backward pass as a graph of its own, which holds the operations of the region."""
    counts: dict[bool, list[int]] = {}

    def backend(graph: Any, inputs: Any) -> Any:
        def counted(inner: Any, given: Any) -> Any:
            found.append(sum(node.target is torch.ops.aten.tanh.default for node in inner.graph.nodes))
            return make_boxed_func(inner)
        return aot_module_simplified(graph, inputs, fw_compiler=counted, bw_compiler=counted,
                                     partition_fn=min_cut_rematerialization_partition)

    for again in (False, True):
        found = counts[again] = []
        model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)])

        def step(x: Any, model: Any = model, again: bool = again) -> None:
            loss = checkpoint(model, x, use_reentrant=False).sum() if again else model(x).sum()
            loss.backward()
        stator.compile(step, backend=backend, fullgraph=True)(values(2, 4))
    assert counts[False] == [3]
    assert counts[True][0] == 3 and sum(counts[True]) > 3
