"""Which inputs share memory.   f(a, a.detach()) with a.add_(1) inside  ->  a guard that these two still share it

A compiler that functionalises (AOTAutograd) bakes in which inputs overlap, and values that the trace has read from
inputs (`n.item()`) hold while nothing writes to them: where the graph writes in place, the way the inputs share
storages is a fact of the trace.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from stator.graph.metadata.tensor_classes import PLAIN_CLASSES
from stator.guards.partition import Address, byte_range, group
from stator.source import MODULE_DICTS, Key, Source


def storage_partition(*tensors: torch.Tensor) -> tuple[int, ...]:
    """For each tensor, the number of the first one that lives in the same storage."""
    return group([byte_range(Address.STORAGE, tensor) for tensor in tensors], [True] * len(tensors))[0]


def sharing_memory(inputs: list[Any]) -> frozenset[str]:
    """The names of inputs that share their memory with others; which do is guarded where the graph writes."""
    tensors = [each for each in inputs if each.tensor is not None and type(each.tensor) in PLAIN_CLASSES
               and each.tensor.layout is torch.strided]
    places = storage_partition(*[each.tensor for each in tensors])
    counts = collections.Counter(places)
    return frozenset(each.node.name for each, place in zip(tensors, places, strict=True) if counts[place] > 1)


def address_of(tensor: torch.Tensor) -> int:
    """Where the first item of a tensor lies."""
    with torch._C.DisableTorchFunction():
        return tensor.data_ptr()


def awaits_history(tensor: torch.Tensor) -> bool:
    """Whether a view is a leaf only until it is used: its base was written to, and autograd has not made its history.

    `is_leaf` and `grad_fn` make it.  A write of another shape fails in any case: first of all for a leaf.
    """
    with torch._C.DisableTorchFunction():
        if not tensor.requires_grad or not tensor._is_view() or not tensor._base.requires_grad:
            return False
        with _disable_current_modes(), torch.enable_grad():
            try:
                tensor.add_(torch.empty([2] * (tensor.dim() + 1), dtype=tensor.dtype, device=tensor.device))
            except RuntimeError as error:
                return str(error).startswith("a leaf Variable")
    return False


def overlap_across_storages(inputs: list[Any]) -> bool:
    """Whether inputs share memory through several storages, as DLPack makes them: AOTAutograd takes them for apart."""
    tensors = [each.tensor for each in inputs if is_dense(each.tensor)]
    groups, _ = group([byte_range(Address.MEMORY, tensor) for tensor in tensors], [True] * len(tensors))
    with torch._C.DisableTorchFunction():
        return any(tensors[first].untyped_storage()._cdata != tensors[number].untyped_storage()._cdata
                   for number, first in enumerate(groups))


def refuses_writes(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses to have a tensor written to in grad mode: a leaf, or a view of one."""
    with torch._C.DisableTorchFunction():
        base = _base(tensor)
        return _requires_grad(tensor) and (_is_leaf(tensor) or base is not None and _is_leaf(base))


def is_view(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return _base(tensor) is not None


_base, _requires_grad, _is_leaf = (  # a guard asks them, whatever the program has put in their place
    getattr(torch._C.TensorBase, name).__get__ for name in ("_base", "requires_grad", "is_leaf"))


def is_member(source: Source | None) -> bool:
    """Whether a tensor was read from a module's parameters or buffers."""
    base = None if source is None else source.base
    return isinstance(base, Key) and base.key in MODULE_DICTS


def is_dense(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided


def sharing_candidates(inputs: list[Any], given: list[Any], written: set[Any], read: set[Any],
                       in_order: bool) -> list[Any]:
    """The inputs of a trace whose storages are compared, by their nodes `written` and `read`.

    given: those that the graph gets.  read: those whose values the trace has looked at.  Members of modules count for
    a graph that runs in order only where the one meets the other: it writes wherever the tensors lie.
    """
    own = {each.node for each in given}
    found = [each for each in inputs if is_dense(each.tensor) and (each.node in own or each.node in read)]
    if in_order:
        found = [each for each in found
                 if not is_member(each.source) or each.node in read or read and each.node in written]
    return found if any(each.node in written for each in found) else []
