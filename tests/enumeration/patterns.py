"""Arrangements of a sample's memory: which of its tensors share storage with one another and with an observed name.

In: a sample and a pattern.  Out: fresh arguments and `observed`, a tensor or array that a program reads beside them.
The observed name has the sizes of the written tensor in every pattern, so that sizes decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch

from tests.enumeration.samples import Path, Sample

Arranged = tuple[Sample, Any]
NUMPY_DTYPES = frozenset({torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128})


def is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.numel() > 0 and type(tensor) is torch.Tensor


def written(sample: Sample) -> tuple[Path, torch.Tensor]:
    found = sample.first_written()
    assert found is not None
    return found


def distinct(sample: Sample) -> Arranged | None:
    return sample, written(sample)[1].clone()


def same_tensor(sample: Sample) -> Arranged | None:
    return sample, written(sample)[1]


def overlapping_view(sample: Sample) -> Arranged | None:
    """Written tensor and observed name are views of one base, one element apart."""
    path, tensor = written(sample)
    if not is_plain(tensor):
        return None
    base = torch.cat([tensor.reshape(-1), tensor.reshape(-1)[:1]])
    sample.put(path, base[:-1].view(tensor.shape))
    return sample, base[1:].view(tensor.shape)


def view_of_base(sample: Sample) -> Arranged | None:
    """The written tensor is a view of the observed one."""
    path, tensor = written(sample)
    if not is_plain(tensor):
        return None
    base = tensor.contiguous()
    sample.put(path, base.view(tensor.shape))
    return sample, base


def partner(sample: Sample) -> tuple[Path, torch.Tensor] | None:
    """Another tensor among the operands that could be the written one."""
    path, tensor = written(sample)
    for other_path, other in sample.tensors():
        if other_path != path and other.shape == tensor.shape and other.dtype == tensor.dtype and other.layout == tensor.layout:
            return other_path, other
    return None


def same_operand(sample: Sample) -> Arranged | None:
    """Another operand is the written tensor itself."""
    found = partner(sample)
    if found is None:
        return None
    tensor = written(sample)[1]
    sample.put(found[0], tensor)
    return sample, tensor.clone()


def overlapping_operand(sample: Sample) -> Arranged | None:
    found = partner(sample)
    path, tensor = written(sample)
    if found is None or not is_plain(tensor):
        return None
    base = torch.cat([tensor.reshape(-1), tensor.reshape(-1)[:1]])
    sample.put(path, base[:-1].view(tensor.shape))
    sample.put(found[0], base[1:].view(tensor.shape))
    return sample, tensor.clone()


def array_of(tensor: torch.Tensor) -> numpy.ndarray | None:
    return tensor.contiguous().numpy().copy() if is_plain(tensor) and tensor.dtype in NUMPY_DTYPES and not tensor.requires_grad else None


def distinct_array(sample: Sample) -> Arranged | None:
    array = array_of(written(sample)[1])
    return None if array is None else (sample, array)


def numpy_face(sample: Sample) -> Arranged | None:
    """The observed name is a numpy array over the memory of the written tensor."""
    path, tensor = written(sample)
    array = array_of(tensor)
    if array is None:
        return None
    sample.put(path, torch.from_numpy(array))
    return sample, array


def element(sample: Sample) -> Arranged | None:
    """The observed name is one element of the written tensor, a view without dimensions."""
    tensor = written(sample)[1]
    return (sample, tensor.view(-1)[sample.place]) if is_plain(tensor) and tensor.is_contiguous() else None


def distinct_element(sample: Sample) -> Arranged | None:
    found = element(sample)
    return found and (sample, found[1].clone())


PATTERNS: dict[str, Callable[[Sample], Arranged | None]] = {
    "distinct": distinct, "same tensor": same_tensor, "overlapping view": overlapping_view, "view of a base": view_of_base,
    "same operand": same_operand, "overlapping operand": overlapping_operand, "distinct array": distinct_array, "numpy face": numpy_face,
    "distinct element": distinct_element, "element": element,
}  # fmt: skip

# What a pattern asks of a sample; a sample without it is listed with this reason.
STRIDED = "needs a strided written tensor with elements"
PARTNER = "needs another operand with the sizes, dtype and layout of the written tensor"
ARRAY = "needs a written tensor that numpy can show"
NEEDS: dict[str, str] = {
    "overlapping view": STRIDED, "view of a base": STRIDED, "same operand": PARTNER, "overlapping operand": f"{PARTNER}, strided",
    "distinct array": ARRAY, "numpy face": ARRAY, "distinct element": f"{STRIDED}, contiguous", "element": f"{STRIDED}, contiguous",
}  # fmt: skip

ITEMS = ("item", "item twice")
VALUES = ("value", *ITEMS, "alias", "face")
# Each is one compiled function, called with these patterns in turn; and the observations it is made for, if not for all.
ORDERS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("distinct", "same tensor", "overlapping view", "view of a base", "same operand", "overlapping operand"), ()),
    (("same operand", "view of a base", "distinct"), VALUES),
    (("distinct array", "numpy face"), ()),
    (("numpy face", "distinct array"), VALUES),
    (("distinct element", "element"), ITEMS),
    (("element", "distinct element"), ITEMS),
)
