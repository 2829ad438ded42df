"""Refuse operations whose rule for fake tensors is missing or wrong.   torch.quantize_per_tensor(x)  ->  Break"""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.metadata.plain_inputs import CAPSULE

ATOMS = frozenset({int, float, complex, bool, str, type(None), type(...), torch.dtype, torch.device, torch.layout,
                   torch.memory_format, range})
_STORED = frozenset("_nnz indices _indices values _values crow_indices col_indices ccol_indices row_indices".split())


def refuse_real_tensors(values: Iterable[Any]) -> None:
    """What has no fake (a subclass, say) cannot take part in a traced operation."""
    for value in values:
        cls = type(value)
        if cls is FakeTensor or cls in ATOMS:
            continue
        if cls is list or cls is tuple:
            refuse_real_tensors(value)
        elif issubclass(cls, torch.Tensor):
            raise Break("SB017", kind_of(value))
        elif cls is CAPSULE:  # whoever takes a tensor out of it empties it
            raise Break("SB005", "a capsule passed to a torch operation")


def kind_of(tensor: torch.Tensor) -> str:
    """What keeps a tensor from having a fake, in words."""
    with torch._C.DisableTorchFunction():
        if tensor.is_nested:
            return f"a nested tensor of layout {tensor.layout}"
        if type(tensor) is torch.Tensor and tensor.layout is not torch.strided:
            return f"a tensor of layout {tensor.layout}"
        return f"a tensor of type {type(tensor).__name__}"


def refuse_misread(name: str) -> None:
    """Break at an operation whose rule for fake tensors gives a result of another kind or size than the operation."""
    name, _, overload = name.partition(".")  # an operator is called `_nnz.default`
    if keyword.iskeyword(overload):
        raise Break("SB011", f"the operator {name}.{overload}")  # code of graphs cannot spell it
    if name.startswith("quantize_"):
        raise Break("SB017", "a quantised tensor")  # its fake would be a plain one
    if name == "_pack_padded_sequence":
        raise Break("SB017", "packed sequences")  # their fake has the length of the batch
    if name in _STORED:
        raise Break("SB004", "how many elements a sparse tensor has")  # its fake has none
