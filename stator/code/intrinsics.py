"""Intrinsics of CPython as functions, and texts of its warnings.   "INTRINSIC_TYPEVAR"  ->  a function that runs it

CALL_INTRINSIC_1 and _2 run them by number; 3.11 has none.  Texts of DeprecationWarnings are read from CPython itself.
"""

from __future__ import annotations

import builtins
import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from .encode import encode_parts
from .instruction import Instruction
from .opcodes import INTRINSICS_1, INTRINSICS_2


def _stub(first: object, second: object = None) -> Any: ...


@functools.cache
def intrinsic(name: str) -> Callable[..., Any]:
    """The intrinsic called `name`, to be called with one or two arguments."""
    operands: tuple[int, ...]
    if name in INTRINSICS_1:
        opname, number, operands = "CALL_INTRINSIC_1", INTRINSICS_1.index(name), (0,)
    else:
        opname, number, operands = "CALL_INTRINSIC_2", INTRINSICS_2.index(name), (0, 1)
    body = [Instruction("RESUME", 0), *(Instruction("LOAD_FAST", slot) for slot in operands),
            Instruction(opname, number), Instruction("RETURN_VALUE")]
    code = encode_parts(_stub.__code__, body, co_name=name)
    return FunctionType(code, {"__name__": "typing", "__builtins__": builtins}, name, (None,))


def _text_of(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return str(seen[0].message) if seen else ""


def _waiting() -> Iterator[None]:
    try:
        yield
        yield
    except ValueError:
        yield


def _throw_by_parts() -> None:
    generator = _waiting()
    next(generator)
    generator.throw(ValueError, "text")  # type: ignore[attr-defined]


INVERTED_BOOL = _text_of(lambda: operator.invert(True))  # ~True
THROWN_BY_PARTS = _text_of(_throw_by_parts)  # generator.throw(type, value)
