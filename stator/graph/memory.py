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


def is_member(source: Source | None) -> bool:
    """Whether a tensor was read from a module's parameters or buffers."""
    base = None if source is None else source.base
    return isinstance(base, Key) and base.key in MODULE_DICTS


def sharing_candidates(inputs: list[Any]) -> list[Any]:
    """The graph inputs whose storages are compared: dense tensors that are not members of modules."""
    return [each for each in inputs if isinstance(each.tensor, torch.Tensor) and not is_member(each.source)
            and each.tensor.layout is torch.strided]
