"""Opcodes that 3.11 does not have: those of 3.12 with its intrinsics, and those of 3.13."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.code.intrinsics import intrinsic
from stator.code.opcodes import NULL_LAST
from stator.host.value_kinds import is_a
from stator.interp.frame import NULL, UNBOUND, Continuation, Frame, Raised
from stator.interp.generators.generators import ASYNC_GEN_WRAP
from stator.interp.generators.suspended_frames import kind_of, stopped_inside
from stator.interp.machine import op, ops
from stator.interp.objects import operators
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.items import get_item, set_item
from stator.interp.opcodes.building_opcodes import LIST_TO_TUPLE, make_function, set_attribute
from stator.interp.opcodes.exception_opcodes import PREP_RERAISE_STAR
from stator.interp.opcodes.flow_opcodes import PUSH_WITH_NULL, format_piece, give_back
from stator.interp.opcodes.name_opcodes import push_name_or_cell, push_name_or_global
from stator.interp.services import VM

Unary = Callable[[Any, Frame, Any], None]
Binary = Callable[[Any, Frame, Any, Any], None]


@op
def LOAD_FAST_AND_CLEAR(vm: VM, frame: Frame, instr: Instruction) -> None:
    """Put a variable aside while an inlined comprehension has one of the same name."""
    value = frame.locals[instr.arg]
    frame.stack.append(NULL if value is UNBOUND else value)
    frame.locals[instr.arg] = UNBOUND


@op
def BINARY_SLICE(vm: VM, frame: Frame, instr: Instruction) -> None:
    stop, start, obj = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    get_item(vm, obj, slice(start, stop))


@op
def STORE_SLICE(vm: VM, frame: Frame, instr: Instruction) -> None:
    stop, start, obj, value = (frame.stack.pop() for _ in range(4))
    set_item(vm, obj, slice(start, stop), value)


class SuperMade(Continuation):
    """`super().name`: the attribute of what calling `super` gave."""

    __slots__ = ("name", "method")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        if self.method and NULL_LAST:
            return load_attr(vm, value, self.name, PUSH_WITH_NULL)
        if self.method:
            frame.stack.append(NULL)
        load_attr(vm, value, self.name)


@op
def LOAD_SUPER_ATTR(vm: VM, frame: Frame, instr: Instruction) -> None:
    obj, cls, function = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    # A global named `super` is called as the program wrote it; the real one gets the arguments it would find.
    args = (cls, obj) if function is super or instr.arg & 2 else ()
    vm.call(function, args, {}, SuperMade(instr.argval, instr.flag))


@op
def SET_FUNCTION_ATTRIBUTE(vm: VM, frame: Frame, instr: Instruction) -> None:
    function, value = frame.stack.pop(), frame.stack.pop()
    if instr.arg == 8:  # the closure comes first, before any other attribute
        del vm.fresh[id(function)]
        function = make_function(vm, frame, function.__code__, value)
    else:
        set_attribute(function, instr.arg, value)
    frame.stack.append(function)


@op
def END_FOR(vm: VM, frame: Frame, instr: Instruction) -> None:
    raise AssertionError("an exhausted FOR_ITER goes past its END_FOR")


@op
def END_SEND(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    frame.stack[-1] = value


@op
def CLEANUP_THROW(vm: VM, frame: Frame, instr: Instruction) -> None:
    """An exception thrown into a delegating generator came back out of the delegate."""
    exc = frame.stack.pop()
    if not is_a(exc, StopIteration):
        raise Raised(exc, again=True)
    frame.stack[-2:] = [None, exc.value]


@op
def FORMAT_WITH_SPEC(vm: VM, frame: Frame, instr: Instruction) -> None:
    spec = frame.stack.pop()
    format_piece(vm, frame, frame.stack.pop(), 0, spec)


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


def _opcode(handler: Any) -> Callable[..., None]:
    """An intrinsic that is an opcode in 3.11."""
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
    "INTRINSIC_STOPITERATION_ERROR":
        lambda vm, frame, exc: frame.stack.append(stopped_inside(kind_of(frame.code), exc)),
    "INTRINSIC_ASYNC_GEN_WRAP": _opcode(ASYNC_GEN_WRAP),
    "INTRINSIC_UNARY_POSITIVE": lambda vm, frame, value: operators.unary(vm, "+", value),
    "INTRINSIC_LIST_TO_TUPLE": _opcode(LIST_TO_TUPLE),
    **{name: _native(name) for name in ("INTRINSIC_TYPEVAR", "INTRINSIC_PARAMSPEC", "INTRINSIC_TYPEVARTUPLE",
                                        "INTRINSIC_SUBSCRIPT_GENERIC", "INTRINSIC_TYPEALIAS")},
}
BINARY: dict[str, Binary] = {
    "INTRINSIC_PREP_RERAISE_STAR": _opcode(PREP_RERAISE_STAR),
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS": _set_function_type_params,
    **{name: _native(name) for name in ("INTRINSIC_TYPEVAR_WITH_BOUND", "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS",
                                        "INTRINSIC_SET_TYPEPARAM_DEFAULT")},
}
ops(
    LOAD_LOCALS=lambda vm, frame, instr: frame.stack.append(frame.names),
    LOAD_FROM_DICT_OR_DEREF=lambda vm, frame, instr: push_name_or_cell(vm, frame, frame.stack.pop(), instr.arg),
    LOAD_FROM_DICT_OR_GLOBALS=lambda vm, frame, instr: push_name_or_global(vm, frame, frame.stack.pop(), instr.argval),
    RETURN_CONST=lambda vm, frame, instr: give_back(vm, frame, instr.argval),
    CONVERT_VALUE=lambda vm, frame, instr: format_piece(vm, frame, frame.stack.pop(), instr.arg, ""),
    FORMAT_SIMPLE=lambda vm, frame, instr: format_piece(vm, frame, frame.stack.pop(), 0, ""),
)
