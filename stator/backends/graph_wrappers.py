"""Wrap a compiled graph so that its call leaves tensors as eager does: write counts, histories, patched members."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.mutation import storage_of, written_storages
from stator.host.suspended_patches import ABSENT, find_patches, original, suspended

Function = Callable[..., Any]


def write_counts(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[int, int]:
    """How often the graph writes to each input; nothing where that is unknown or counters must stay as they are.

    x.add_(1); x.mul_(2)  ->  x._version grows by 2, whatever the compiled graph does.  Where results can be
    differentiated, only counters of inputs whose every write hides from autograd (`x.data.add_(1)`) are restored.
    """
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


_RUNTIME = ("torch._functorch._aot_autograd.runtime_wrappers", "torch._functorch._aot_autograd.functional_utils")


@functools.cache
def runtime_names() -> frozenset[str]:
    """Members of Tensor that code around a compiled graph may use. Call it when a graph was compiled."""
    own = __name__.rpartition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name in _RUNTIME or name.startswith(own)]
    return frozenset(name for module in modules for code in _codes(module) for name in code.co_names
                     if original(name) is not ABSENT)


def _codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    pending: list[Any] = [value for value in vars(module).values()
                          if getattr(value, "__module__", "") == module.__name__]
    while pending:
        value = pending.pop()
        if isinstance(value, types.CodeType):
            yield value
            pending += value.co_consts
        elif isinstance(value, type):
            pending += vars(value).values()
        elif isinstance(value, (staticmethod, classmethod)):
            pending.append(value.__func__)
        elif isinstance(value, types.FunctionType):
            pending.append(value.__code__)


def past_patches(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Take monkeypatches of Tensor off while a graph runs: the wrappers around it call torch's own members."""
    def run(*args: object) -> Any:
        with suspended(find_patches()):
            return compiled(*args)

    return run
