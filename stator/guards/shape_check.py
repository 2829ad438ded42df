"""A relation between sizes, strides and numbers, as data.   x.size(0) % 8 == 0

In: operands, a stack program over them, its text.  Out: data that `csrc/guards/shape_check.cpp` computes.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

from stator.source import Source


class Property(enum.IntEnum):
    """Which number of the value at a source."""

    NUMBER = 0  # a Python int itself
    SIZE = 1
    STRIDE = 2
    STORAGE_OFFSET = 3
    REAL = 4  # a Python float itself


class Code(enum.IntEnum):
    """Operations of the stack program; the argument is the number of an operand or constant, or how many values."""

    LOAD, CONSTANT, ADD, MUL, FLOOR_DIV, MOD, POW, MIN, MAX = range(9)
    EQ, NE, LT, LE, GT, GE, ALL, ANY = range(9, 17)
    NEGATE, TRUE_DIV, TO_FLOAT, TRUNC, FLOOR, CEIL, CHOOSE, SQUARE_ROOT, ABSOLUTE, ROUND = range(17, 27)


def is_ordinary(value: float) -> bool:
    """A float for which relations are exact: neither zero, which has two signs, nor infinite, nor a NaN."""
    return value != 0.0 and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Operand:
    """Where one number is read."""

    source: Source
    property: Property
    index: int = 0

    def text(self) -> str:
        base = self.source.text()
        if self.property is Property.SIZE:
            return f"{base}.size({self.index})"
        if self.property is Property.STRIDE:
            return f"{base}.stride({self.index})"
        return f"{base}.storage_offset()" if self.property is Property.STORAGE_OFFSET else base

    def of(self, value: Any) -> int | float | None:
        """The number in the value at the source; None when there is none."""
        if self.property is Property.NUMBER:
            return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None
        if self.property is Property.REAL:
            return value if type(value) is float and is_ordinary(value) else None
        if not hasattr(type(value), "stride"):
            return None
        if self.property is Property.STORAGE_OFFSET:
            return value.storage_offset()
        extents = value.size() if self.property is Property.SIZE else value.stride()
        return extents[self.index] if self.index < len(extents) else None


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """One relation."""

    operands: tuple[Operand, ...]
    code: tuple[tuple[int, int], ...]
    constants: tuple[int | float, ...]
    shown: str

    def text(self) -> str:
        return self.shown

    @property
    def is_rule(self) -> bool:
        """Whether it only requires that a size is neither 0 nor 1, which are constants of their own."""
        return self.constants == (2,) and self.code == _AT_LEAST and self.operands[0].property is not Property.NUMBER


_AT_LEAST = ((int(Code.LOAD), 0), (int(Code.CONSTANT), 0), (int(Code.GE), 2))
