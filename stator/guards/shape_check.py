"""A relation between sizes, strides and numbers, as data.   x.size(0) % 8 == 0

In: operands (where each number is read), a small stack program over them, and its text in the user's terms.
Out: `holds(values)`, the meaning that `csrc/shape_check.cpp` is tested against.

What cannot be computed (a division by zero, more than 64 bits) does not hold.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Sequence
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
    """Operations of the stack program; the argument says which operand or constant, or how many values."""

    LOAD, CONSTANT, ADD, MUL, FLOOR_DIV, MOD, POW, MIN, MAX = range(9)
    EQ, NE, LT, LE, GT, GE, ALL, ANY = range(9, 17)
    NEGATE, TRUE_DIV, TO_FLOAT, TRUNC, FLOOR, CEIL, CHOOSE, SQUARE_ROOT, ABSOLUTE, ROUND = range(17, 27)


def is_ordinary(value: float) -> bool:
    """A float of which relations tell the truth: neither zero, which has two signs, nor infinite, nor a NaN."""
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
        """Whether it only says that a size is neither 0 nor 1, which are constants of their own."""
        return self.constants == (2,) and self.code == _AT_LEAST and self.operands[0].property is not Property.NUMBER

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether it is true of the values at the operands' sources."""
        numbers = [operand.of(value) for operand, value in zip(self.operands, values, strict=True)]
        stack: list[Any] = []
        for op, argument in self.code:
            if op == Code.LOAD:
                stack.append(numbers[argument])
            elif op == Code.CONSTANT:
                stack.append(self.constants[argument])
            else:
                count = 3 if op == Code.CHOOSE else argument
                taken = stack[-count:]
                del stack[-count:]
                stack.append(None if None in taken else _apply(Code(op), taken))
            if stack[-1] is None:
                return False
        return bool(stack[-1])


_AT_LEAST = ((int(Code.LOAD), 0), (int(Code.CONSTANT), 0), (int(Code.GE), 2))


def _apply(op: Code, values: list[Any]) -> Any:
    if op is Code.CHOOSE:
        return values[1] if values[0] else values[2]
    if len(values) == 1:
        return _UNARY.get(op, lambda value: value)(values[0])
    result = values[0]
    for value in values[1:]:
        result = _BINARY[op](result, value)
        if result is None or type(result) is int and not -(1 << 63) <= result < 1 << 63:
            return None
    return int(result) if type(result) is bool else result


def _divided(divide: Callable[[int, int], int]) -> Callable[[Any, Any], int | None]:
    return lambda left, right: None if type(left) is float or type(right) is float or not right else divide(left, right)


_UNARY: dict[Code, Callable[[Any], Any]] = {
    Code.NEGATE: lambda value: int(not value), Code.TO_FLOAT: float, Code.TRUNC: math.trunc, Code.FLOOR: math.floor,
    Code.CEIL: math.ceil, Code.ROUND: round, Code.SQUARE_ROOT: lambda value: math.sqrt(value) if value >= 0 else None,
    Code.ABSOLUTE: lambda value: abs(value) if value != -(1 << 63) else None,
}
_BINARY: dict[Code, Callable[[Any, Any], Any]] = {
    Code.ADD: operator.add, Code.MUL: operator.mul, Code.MIN: lambda a, b: a if a <= b else b,
    Code.MAX: lambda a, b: a if a >= b else b, Code.ALL: lambda a, b: int(bool(a) and bool(b)),
    Code.ANY: lambda a, b: int(bool(a) or bool(b)), Code.TRUE_DIV: lambda a, b: a / b if b else None,
    Code.POW: lambda a, b: a**b if type(a) is float or type(b) is float or b >= 0 else None,
    Code.FLOOR_DIV: _divided(operator.floordiv), Code.MOD: _divided(operator.mod), Code.EQ: operator.eq,
    Code.NE: operator.ne, Code.LT: operator.lt, Code.LE: operator.le, Code.GT: operator.gt, Code.GE: operator.ge,
}
