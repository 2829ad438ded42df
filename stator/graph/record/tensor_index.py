"""Masks of bytes.   x[mask.byte()]  ->  the node keeps the bytes; its fake is indexed by booleans

In: the arguments of an indexing operation.  Out: the same, with a boolean fake for each fake of bytes, which torch's
rules for fakes refuse.  A backend that runs the nodes in order takes bytes, and warns as eager does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_INDEXING = frozenset({"getitem", "setitem", "__getitem__", "__setitem__"})


def with_masks(target: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of x[index] and x[index] = value for the rule of torch; those of other operations as they are."""
    if len(args) < 2 or getattr(target, "__name__", target) not in _INDEXING:
        return args
    return args[0], _mask(args[1]), *args[2:]


def _mask(index: object) -> object:
    if type(index) is tuple:
        return tuple(map(_mask, index))
    if type(index) is not FakeTensor or index.dtype is not torch.uint8:
        return index
    memo: tuple[int, FakeTensor] | None = getattr(index, "boolean_mask", None)
    if memo is None or memo[0] != index._version:  # one mask, one number of elements
        memo = index.boolean_mask = (index._version, index.bool())  # type: ignore[attr-defined]
    return memo[1]
