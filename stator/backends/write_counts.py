"""How often inputs were written to.   x.add_(1); x.mul_(2)  ->  x._version grows by 2, whatever the compiled graph does

In: a captured graph that writes to its inputs.  Out: its compiled form, after which the counters stand where the
program's own writes leave them; AOTAutograd counts the copies that it makes instead.

Where results can be differentiated, what autograd has saved is checked against these counters: only those stay where
they were of inputs whose every write hides from autograd (`x.data.add_(1)`, a numpy array on the memory of x).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.mutation import storage_of, written_storages

Function = Callable[..., Any]


def write_counts(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[int, int]:
    """For each input that the graph writes to, how often; nothing where that cannot be told or must not be touched."""
    results = next(node for node in reversed(gm.graph.nodes) if node.op == "output").all_input_nodes
    values = [node.meta.get("example_value") for node in results]
    with torch._C.DisableTorchFunction():
        differentiable = any(isinstance(value, torch.Tensor) and has_history(value) for value in values)
        storages = set().union(*map(written_storages, gm.graph.nodes))
        counts = {place: fake._version for place, fake in enumerate(inputs) if type(fake) is FakeTensor
                  and not fake.is_inference() and (fake._version or storage_of(fake) in storages)}
        if differentiable:
            counts = {place: count for place, count in counts.items() if not count}
        if any(inputs[place].requires_grad and not inputs[place].is_leaf for place in counts):
            return {}
    places = [storage_of(fake) for fake in inputs if type(fake) is FakeTensor]
    if any(places.count(storage_of(inputs[place])) > 1 for place in counts):  # which of them share a counter?
        return {}
    return counts


def has_history(tensor: torch.Tensor) -> bool:
    try:
        return tensor.requires_grad and not tensor.is_leaf
    except RuntimeError:  # one of several views whose base was written to: autograd refuses to tell
        return True


def with_write_counts(compiled: Function, counts: dict[int, int]) -> Function:
    places, added = tuple(counts), tuple(counts.values())

    def run(*args: Any) -> Any:
        written = tuple([args[place] for place in places])
        after = tuple([tensor._version + count for tensor, count in zip(written, added, strict=True)])
        out = compiled(*args)
        torch._C._autograd._unsafe_set_version_counter(written, after)
        return out

    return run
