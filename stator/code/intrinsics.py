"""CPython's intrinsics as functions.   "INTRINSIC_TYPEVAR"  ->  a function of one argument that runs it

An intrinsic is what CALL_INTRINSIC_1 and CALL_INTRINSIC_2 do by number; some of them (a type variable whose bound is
computed when somebody asks) can be had in no other way.  3.11 has none.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .encode import encode_parts
from .instruction import Instruction
from .opcodes import INTRINSICS_1, INTRINSICS_2

_functions: dict[str, Callable[..., Any]] = {}


def intrinsic(name: str) -> Callable[..., Any]:
    """The intrinsic called `name`, to be called with one or two arguments."""
    function = _functions.get(name)
    if function is None:
        function = _functions[name] = _function(name)
    return function


def _stub(first: object, second: object = None) -> Any: ...


def _function(name: str) -> Callable[..., Any]:
    operands: tuple[int, ...]
    if name in INTRINSICS_1:
        opname, number, operands = "CALL_INTRINSIC_1", INTRINSICS_1.index(name), (0,)
    else:
        opname, number, operands = "CALL_INTRINSIC_2", INTRINSICS_2.index(name), (0, 1)
    body = [Instruction("RESUME", 0), *(Instruction("LOAD_FAST", slot) for slot in operands),
            Instruction(opname, number), Instruction("RETURN_VALUE")]
    code = encode_parts(_stub.__code__, body, co_name=name)
    return FunctionType(code, {"__name__": "typing", "__builtins__": builtins}, name, (None,))
