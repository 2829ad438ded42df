"""Which inputs share memory.   f(a, a.detach()) with a.add_(1) inside  ->  a guard that these two still share it

A compiler that functionalises (AOTAutograd) bakes in which inputs overlap: where the graph writes in place, the way
the inputs share storages is a fact of the trace. Parameters and buffers of modules are left out: they are tied by
identity, and asking all of them at every call would cost more than it tells.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.source import MODULE_DICTS, Key, Source


def storage_partition(*tensors: torch.Tensor) -> tuple[int, ...]:
    """For each tensor, the number of the first one that lives in the same storage."""
    first: dict[int, int] = {}
    with torch._C.DisableTorchFunction():
        addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return tuple(first.setdefault(address, number) for number, address in enumerate(addresses))


def address_of(tensor: torch.Tensor) -> int:
    """Where the first item of a tensor lies."""
    with torch._C.DisableTorchFunction():
        return tensor.data_ptr()


def memory_partition(*tensors: torch.Tensor) -> tuple[Any, ...]:
    """For each tensor, the number of the first one that it overlaps with, through others too; and where it begins,
    if it overlaps with any.

    Tensors that lie apart in one storage are as good as in two, for a compiler; of those that do not, the places count.
    """
    shared = storage_partition(*tensors)
    if len(set(shared)) == len(shared):
        return shared
    found: list[Any] = list(range(len(shared)))
    for group in set(shared):
        members = [number for number, place in enumerate(shared) if place == group]
        ranges = sorted((*byte_range(tensors[number]), number) for number in members)
        together: list[int] = []
        reach = 0
        for begin, end, number in [*ranges, (1 << 62, 1 << 62, -1)]:
            if begin >= reach:
                if len(together) > 1:
                    for each in together:
                        found[each] = (min(together), byte_range(tensors[each])[0])
                together = []
            together.append(number)
            reach = max(reach, end)
    return tuple(found)


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """The first byte of its storage that a tensor uses, and the one behind the last."""
    with torch._C.DisableTorchFunction():
        begin = tensor.storage_offset() * tensor.itemsize
        if not tensor.numel():
            return begin, begin
        last = sum([(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)])
        return begin, begin + (last + 1) * tensor.itemsize


def refuses_writes(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses to have a tensor written to in grad mode: a leaf, or a view of one."""
    with torch._C.DisableTorchFunction():
        base = tensor._base
        return tensor.requires_grad and (tensor.is_leaf or base is not None and base.is_leaf)


def is_member(source: Source | None) -> bool:
    """Whether a tensor was read from a module's parameters or buffers."""
    base = None if source is None else source.base
    return isinstance(base, Key) and base.key in MODULE_DICTS


def sharing_candidates(inputs: list[Any]) -> list[Any]:
    """The graph inputs whose storages are compared: dense tensors that are not members of modules."""
    return [each for each in inputs if isinstance(each.tensor, torch.Tensor) and not is_member(each.source)
            and each.tensor.layout is torch.strided]
