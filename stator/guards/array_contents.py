"""What numpy arrays and scalars hold, asked again by guards."""

from __future__ import annotations

from typing import Any

import numpy
from numpy import ndarray


def same_contents(array: object, expected: Any) -> bool:
    """Whether an array holds these bytes."""
    if type(array) is not numpy.ndarray:
        return False
    if not array.flags.c_contiguous:
        return array.tobytes() == expected.tobytes()
    return bool(array.size == 0 or numpy.array_equal(_raw(array), _raw(expected)))


def _raw(array: numpy.ndarray) -> ndarray:
    return array.reshape(-1).view(numpy.uint8) if array.dtype.itemsize else array.reshape(-1)


def value_of_scalar(value: Any) -> tuple[str, bytes]:
    return value.dtype.str, value.tobytes()
