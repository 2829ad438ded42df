"""CALL_INTRINSIC_1 and CALL_INTRINSIC_2: what 3.11 has opcodes for, and the type parameters of 3.12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.intrinsics import intrinsic
from stator.interp.frame import Frame
from stator.interp.generators.generator_bodies import kind_of, stopped_inside
from stator.interp.generators.generators import ASYNC_GEN_WRAP
from stator.interp.machine import op
from stator.interp.opcodes.building_opcodes import LIST_TO_TUPLE
from stator.interp.opcodes.exception_opcodes import PREP_RERAISE_STAR
from stator.interp.opcodes.flow_opcodes import UNARY_POSITIVE
from stator.interp.services import VM

Unary = Callable[[Any, Frame, Any], None]
Binary = Callable[[Any, Frame, Any, Any], None]


@op
def CALL_INTRINSIC_1(vm: VM, frame: Frame, instr: Instruction) -> None:
    UNARY[instr.argval](vm, frame, frame.stack.pop())


@op
def CALL_INTRINSIC_2(vm: VM, frame: Frame, instr: Instruction) -> None:
    second, first = frame.stack.pop(), frame.stack.pop()
    BINARY[instr.argval](vm, frame, first, second)


def _refuse(name: str) -> Unary:
    """Not compiled into a function: the interactive prompt's print, `import *`."""
    def refuse(vm: VM, frame: Frame, value: object) -> None:
        raise Break("SB011", name)
    return refuse


def _stopiteration_error(vm: VM, frame: Frame, exc: BaseException) -> None:
    frame.stack.append(stopped_inside(kind_of(frame.code), exc))


def _opcode(handler: Any) -> Callable[..., None]:
    """What 3.11 has an opcode for."""
    def run(vm: VM, frame: Frame, *values: object) -> None:
        frame.stack += values
        handler(vm, frame, None)
    return run


def _set_function_type_params(vm: VM, frame: Frame, function: Any, parameters: Any) -> None:
    function.__type_params__ = parameters  # a function of the trace: MAKE_FUNCTION has just made it
    frame.stack.append(function)


def _native(name: str) -> Callable[..., None]:
    """Objects of `typing`: made at once, and asking nothing of what they are made from."""
    def make(vm: VM, frame: Frame, *values: object) -> None:
        made = vm.native_unhooked(intrinsic(name), values)
        vm.functions.type_parameters[id(made)] = (made, name, values)
        frame.stack.append(made)
    return make


UNARY: dict[str, Unary] = {
    "INTRINSIC_PRINT": _refuse("PRINT_EXPR"), "INTRINSIC_IMPORT_STAR": _refuse("IMPORT_STAR"),
    "INTRINSIC_STOPITERATION_ERROR": _stopiteration_error, "INTRINSIC_ASYNC_GEN_WRAP": _opcode(ASYNC_GEN_WRAP),
    "INTRINSIC_UNARY_POSITIVE": _opcode(UNARY_POSITIVE), "INTRINSIC_LIST_TO_TUPLE": _opcode(LIST_TO_TUPLE),
    **{name: _native(name) for name in ("INTRINSIC_TYPEVAR", "INTRINSIC_PARAMSPEC", "INTRINSIC_TYPEVARTUPLE",
                                        "INTRINSIC_SUBSCRIPT_GENERIC", "INTRINSIC_TYPEALIAS")},
}
BINARY: dict[str, Binary] = {
    "INTRINSIC_PREP_RERAISE_STAR": _opcode(PREP_RERAISE_STAR),
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS": _set_function_type_params,
    **{name: _native(name) for name in ("INTRINSIC_TYPEVAR_WITH_BOUND", "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS",
                                        "INTRINSIC_SET_TYPEPARAM_DEFAULT")},
}
