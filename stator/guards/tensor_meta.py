"""Facts that guards of tensors and arrays compare.   a tensor  ->  TensorMeta(torch.Tensor, float32, cpu, (2, 3), ...)

A size or stride of None is not compared (a dynamic dimension).  `dispatch_keys`, the raw bit set of torch's dispatcher,
distinguishes conjugate, negative, inference, nested, functorch and python tensors from plain ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy
import torch
from numpy import ndarray

Extent: TypeAlias = "int | None"
_FLAGS = (("inference", "ADInplaceOrView", True), ("conjugate", "Conjugate", False), ("negative", "Negative", False))


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The facts of one tensor that a compiled graph relies on."""

    type: type
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    sizes: tuple[Extent, ...]
    # None where the layout has no strides (sparse).
    strides: tuple[Extent, ...] | None
    requires_grad: bool
    dispatch_keys: int
    storage_offset: int | None = None

    def text(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.sizes)
        parts = [f"{_short(self.dtype)}[{sizes}] {self.device} requires_grad={self.requires_grad}"]
        if self.type is not torch.Tensor:
            parts.append(f"type {self.type.__qualname__}")
        if self.strides is not None and self.strides != contiguous_strides(self.sizes):
            strides = ", ".join("?" if stride is None else str(stride) for stride in self.strides)
            parts.append(f"strides ({strides})")
        if self.layout is not torch.strided:
            parts.append(f"layout {_short(self.layout)}")
        parts += [f"offset {self.storage_offset}"] * bool(self.storage_offset)
        keys = torch._C.DispatchKeySet.from_raw_repr(self.dispatch_keys)
        flags = [name for name, key, of_plain in _FLAGS if keys.has(getattr(torch._C.DispatchKey, key)) is not of_plain]
        return " ".join([*parts, f"keys {', '.join(flags)}"] if flags else parts)


def tensor_meta(tensor: torch.Tensor, *, with_offset: bool = False) -> TensorMeta:
    # Neither a subclass's __torch_function__, nor its properties, nor an active mode may see these reads.
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        layout = base.layout.__get__(tensor)
        # Symbolic sizes belong to the shape guards.
        sizes = tuple(size if type(size) is int else None for size in base.size(tensor))
        strides = tuple(step if type(step) is int else None for step in base.stride(tensor)) \
            if layout is torch.strided else None
        return TensorMeta(type=type(tensor), dtype=base.dtype.__get__(tensor), device=base.device.__get__(tensor),
                          layout=layout, sizes=sizes, strides=strides, requires_grad=base.requires_grad.__get__(tensor),
                          dispatch_keys=torch._C._dispatch_keys(tensor).raw_repr(),
                          storage_offset=base.storage_offset(tensor) if with_offset else None)


@dataclass(frozen=True, slots=True)
class TensorValues:
    """The contents of a tensor, row by row."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    data: bytes

    def text(self) -> str:
        shown = torch.frombuffer(bytearray(self.data), dtype=self.dtype).tolist() if self.data else []
        rest = f", ... {len(shown)} values" if len(shown) > _SHOWN else ""
        return f"[{', '.join(map(str, shown[:_SHOWN]))}{rest}]"


_SHOWN = 8


def tensor_values(tensor: torch.Tensor) -> TensorValues:
    """The contents of a dense tensor in the CPU's memory; empty for any other."""
    with torch._C.DisableTorchFunction():
        data = b""
        if tensor.numel() and tensor.device.type == "cpu" and tensor.layout is torch.strided:
            dense = tensor.detach().clone(memory_format=torch.contiguous_format)  # a lone item may have any stride
            data = dense.flatten().view(torch.uint8).numpy().tobytes()
        return TensorValues(tensor.dtype, tuple(tensor.shape), data)


def contiguous_strides(sizes: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """The strides of a contiguous tensor of these sizes; None left of an open size."""
    strides: list[Extent] = []
    step: Extent = 1
    for size in reversed(sizes):
        strides.append(step)
        step = None if step is None or size is None else step * max(size, 1)
    return tuple(reversed(strides))


def _short(value: torch.dtype | torch.layout) -> str:
    return str(value).removeprefix("torch.")


def same_contents(array: object, expected: Any) -> bool:
    if type(array) is not numpy.ndarray:
        return False
    if not array.flags.c_contiguous:
        return array.tobytes() == expected.tobytes()
    return bool(array.size == 0 or numpy.array_equal(_raw(array), _raw(expected)))


def _raw(array: numpy.ndarray) -> ndarray:
    return array.reshape(-1).view(numpy.uint8) if array.dtype.itemsize else array.reshape(-1)


def value_of_scalar(value: Any) -> tuple[str, bytes]:
    return value.dtype.str, value.tobytes()
