"""One CUDA graph over the pieces of a graph: results and gradients as in eager, one recording for each pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.backends.regions import compilation
from tests.gpu.conftest import cuda_only
from tests.unit.backends.regions.test_regions import Block, Stack

STEPS = 6  # CUDA graphs are recorded on the second call and replayed from the third


def recordings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each function that is recorded, whether it is a backward pass."""
    found: list[bool] = []
    compile_fx: Any = pytest.importorskip("torch._inductor.compile_fx")
    record = compile_fx.cudagraphify

    def counted(*args: Any, **keywords: Any) -> Any:
        found.append(keywords["is_backward"])
        return record(*args, **keywords)

    monkeypatch.setattr(compile_fx, "cudagraphify", counted)
    return found


@cuda_only
@pytest.mark.parametrize("regions", ["auto", [Block]])
@pytest.mark.parametrize("training", [False, True])
def test_one_recording_over_all_pieces(device: torch.device, regions: Any, training: bool,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    found = recordings(monkeypatch)
    model = Stack([Block(64) for _ in range(6)], 64).to(device)
    compiled = stator.compile(model, options={"triton.cudagraphs": True, "regions": regions})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with events.record() as log, torch.set_grad_enabled(training):
        for _ in range(STEPS):
            x = torch.randn(2, 16, 64, device=device)
            expected, out = model(x), compiled(x)
            torch.testing.assert_close(out, expected, rtol=2e-3, atol=2e-3)
            if training:
                grads = torch.autograd.grad(expected.square().mean(), list(model.parameters()))
                out.square().mean().backward()
                for parameter, grad in zip(model.parameters(), grads, strict=True):
                    torch.testing.assert_close(parameter.grad, grad, rtol=2e-3, atol=2e-3)
                optimizer.step()
                optimizer.zero_grad()
    assert [event for event in log if isinstance(event, events.GraphCut)]
    assert found == ([False, True] if training else [False])


class Tape:
    """Records as CUDA graphs do: inputs are copied in, outputs are written over at the next call."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def record(self, kind: str, run: Any, saved: int) -> Any:
        self.kinds.append(kind)
        held: list[Any] = []

        def call(given: list[Any]) -> list[Any]:
            with torch.no_grad():
                made = run(copies := [each.clone() for each in given])
                assert not copies  # torch's trees hand their inputs over
                if not held:
                    held.extend(made)
                for place, each in zip(held, made, strict=True):
                    if each is not None and place is not each:
                        place.copy_(each)
                return [None if each is None else each.detach() for each in held]

        return call


@pytest.mark.parametrize("training", [False, True])
def test_memory_that_is_used_again(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape()
    monkeypatch.setattr(compilation, "records_cuda_graphs", lambda settings: True)
    monkeypatch.setattr(compilation, "recorder_of", lambda flow: tape.record)
    model = Stack([Block() for _ in range(6)])
    compiled = stator.compile(model, backend="aot_eager", isolate_recompiles=True)
    for _ in range(3):
        x = torch.randn(2, 5, 16)
        with torch.set_grad_enabled(training):
            expected, out = model(x), compiled(x)
        torch.testing.assert_close(out, expected)
        if training:
            for left, right in zip(torch.autograd.grad(out.sum(), list(model.parameters())),
                                   torch.autograd.grad(expected.sum(), list(model.parameters())), strict=True):
                torch.testing.assert_close(left, right)
    assert tape.kinds == (["forward", "backward"] if training else ["inference"])


def test_a_graph_that_uses_no_gpu_is_cut_without_a_recording() -> None:
    model = nn.Sequential(Block(), Block())
    x = torch.randn(2, 5, 16)
    with events.record() as log, torch.no_grad():
        found = stator.compile(model, options={"triton.cudagraphs": True, "regions": [Block]})(x)
        torch.testing.assert_close(found, model(x))
    assert [event.names for event in log if isinstance(event, events.GraphCut)] == [("Block",)]
