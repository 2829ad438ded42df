"""A backend may ask what only the graph knows: the answer changes how it computes, never what is guarded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

import stator
from stator import events


def write_and_attend(cache: torch.Tensor, end: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """A KV cache, written and read through bounds that are tensors."""
    stop = end + new.shape[1]
    cache[:, end:stop] = new
    kept = cache[:, :stop].transpose(1, 2)
    return F.scaled_dot_product_attention(new.transpose(1, 2), kept, kept)


def numbers_of(gm: Any) -> list[Any]:
    values = [node.meta.get("example_value") for node in gm.graph.nodes]
    return [value for value in values if type(value) is torch.SymInt and free_unbacked_symbols(value)]


def run_over_a_cache(compiled: Any) -> None:
    torch.manual_seed(0)
    ours, theirs = torch.zeros(1, 12, 2, 4), torch.zeros(1, 12, 2, 4)
    for at in (0, 3, 6, 9):
        new, end = torch.randn(1, 3, 2, 4), torch.tensor(at)
        assert torch.allclose(compiled(ours, end.clone(), new), write_and_attend(theirs, end, new), atol=1e-6)
        assert torch.equal(ours, theirs)


def test_a_question_of_the_backend_is_no_guard() -> None:
    refused = []

    def asking(gm: Any, example_inputs: Any) -> Any:
        for number in numbers_of(gm):
            try:
                bool(number == 5)
            except GuardOnDataDependentSymNode:
                refused.append(number)
        return gm

    with events.record() as log:
        run_over_a_cache(stator.compile(write_and_attend, backend=asking, fullgraph=True))
    assert refused
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1


def test_a_written_slice_has_the_length_of_what_is_written() -> None:
    """Its bounds are in order, so the length is their difference, also to a compiler that looks at it again."""
    lengths = []

    def looking_again(gm: Any, example_inputs: Any) -> Any:
        for node in gm.graph.nodes:
            if node.target is torch.Tensor.copy_ or node.target == "copy_":
                view = node.args[0]
                base, key = view.args
                bounds = [part.meta["example_value"] for part in (key[1].start, key[1].stop)]
                with base.meta["example_value"].fake_mode:
                    lengths.append(base.meta["example_value"][:, bounds[0]:bounds[1]].shape[1])
        return gm

    run_over_a_cache(stator.compile(write_and_attend, backend=looking_again, fullgraph=True))
    assert lengths and all(length == 3 for length in lengths)


@pytest.mark.parametrize("bounds", [(2, 5), (5, 2), (-4, -1), (-1, -4), (-20, 20), (9, 40), (12, 12)])
def test_bounds_out_of_order_and_out_of_range(bounds: tuple[int, int]) -> None:
    def write(x: torch.Tensor, start: torch.Tensor, stop: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[start:stop] = 1.0
        return y

    compiled = stator.compile(write, backend="eager", fullgraph=True)
    for start, stop in (bounds, (3, 7), bounds[::-1]):
        x = torch.arange(12.0)
        found = compiled(x, torch.tensor(start), torch.tensor(stop))
        assert torch.equal(found, write(x, torch.tensor(start), torch.tensor(stop)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_once(backend: str) -> None:
    with events.record() as log:
        run_over_a_cache(stator.compile(write_and_attend, backend=backend, fullgraph=True))
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1
