"""A relation between sizes, strides and numbers, as data.   x.size(0) % 8 == 0

In: operands (where each number is read), a small stack program over them, and its text in the user's terms.
Out: `holds(values)`, the meaning that `csrc/shape_check.cpp` is tested against.

What cannot be computed (a division by zero, more than 64 bits) does not hold.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
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

    LOAD = 0
    CONSTANT = 1
    ADD = 2
    MUL = 3
    FLOOR_DIV = 4
    MOD = 5
    POW = 6
    MIN = 7
    MAX = 8
    EQ = 9
    NE = 10
    LT = 11
    LE = 12
    GT = 13
    GE = 14
    ALL = 15
    ANY = 16
    NEGATE = 17
    TRUE_DIV = 18
    TO_FLOAT = 19
    TRUNC = 20
    FLOOR = 21
    CEIL = 22
    CHOOSE = 23
    SQUARE_ROOT = 24
    ABSOLUTE = 25
    ROUND = 26


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
        return _unary(op, values[0])
    result = values[0]
    for value in values[1:]:
        result = _binary(op, result, value)
        if result is None or type(result) is int and not -(1 << 63) <= result < 1 << 63:
            return None
    return result


def _unary(op: Code, value: Any) -> Any:
    match op:
        case Code.NEGATE:
            return int(not value)
        case Code.TO_FLOAT:
            return float(value)
        case Code.TRUNC:
            return math.trunc(value)
        case Code.FLOOR:
            return math.floor(value)
        case Code.CEIL:
            return math.ceil(value)
        case Code.SQUARE_ROOT:
            return math.sqrt(value) if value >= 0 else None
        case Code.ABSOLUTE:
            return abs(value) if value != -(1 << 63) else None
        case Code.ROUND:
            return round(value)
    return value


def _binary(op: Code, left: Any, right: Any) -> Any:
    if op in _COMPARE:
        return int(_COMPARE[op](left, right))
    match op:
        case Code.ADD:
            return left + right
        case Code.MUL:
            return left * right
        case Code.MIN:
            return left if left <= right else right
        case Code.MAX:
            return left if left >= right else right
        case Code.ALL:
            return int(bool(left) and bool(right))
        case Code.ANY:
            return int(bool(left) or bool(right))
        case Code.TRUE_DIV:
            return left / right if right else None
    if op is Code.POW:
        return left**right if type(left) is float or type(right) is float or right >= 0 else None
    if type(left) is float or type(right) is float or right == 0:
        return None
    return left // right if op is Code.FLOOR_DIV else left % right


_COMPARE: dict[Code, Any] = {
    Code.EQ: lambda a, b: a == b, Code.NE: lambda a, b: a != b, Code.LT: lambda a, b: a < b,
    Code.LE: lambda a, b: a <= b, Code.GT: lambda a, b: a > b, Code.GE: lambda a, b: a >= b,
}  # fmt: skip
