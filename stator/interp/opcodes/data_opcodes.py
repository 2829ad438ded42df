"""Opcodes that move values: stack, constants, locals and cells."""

from __future__ import annotations

import types
from typing import Any

from stator.code.handover import handed_over
from stator.code.instruction import Instruction
from stator.heap.box import Box
from stator.interp.frame import NULL, UNBOUND, Frame, Raised
from stator.interp.machine import also, op
from stator.interp.services import VM

# ---------------------------------------------------------------------- nothing at all


@op
def NOP(vm: VM, frame: Frame, instr: Instruction) -> None:
    pass


@op
def RESUME(vm: VM, frame: Frame, instr: Instruction) -> None:
    pass


@op
def PRECALL(vm: VM, frame: Frame, instr: Instruction) -> None:
    pass


# ---------------------------------------------------------------------- stack


@op
def POP_TOP(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.pop()


@op
def PUSH_NULL(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(NULL)


@op
def SWAP(vm: VM, frame: Frame, instr: Instruction) -> None:
    stack, n = frame.stack, instr.arg
    stack[-1], stack[-n] = stack[-n], stack[-1]


@op
def COPY(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(frame.stack[-instr.arg])


@op
def LOAD_CONST(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(instr.argval)


# ---------------------------------------------------------------------- locals and cells


@op
def LOAD_FAST(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.locals[instr.arg]
    if type(value) is Box:
        if value.forced or instr.index not in handed_over(frame.unit):
            value = frame.locals[instr.arg] = value.force()
    elif value is UNBOUND:
        raise unbound_local(frame, instr.arg)
    frame.stack.append(value)


def unbound_local(frame: Frame, slot: int) -> Raised:
    name = frame.unit.local_names[slot]
    return Raised(UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value"))


also("LOAD_FAST_CHECK", LOAD_FAST)


@op
def STORE_FAST(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    frame.locals[instr.arg] = UNBOUND if value is NULL else value  # NULL: what LOAD_FAST_AND_CLEAR found unbound


@op
def DELETE_FAST(vm: VM, frame: Frame, instr: Instruction) -> None:
    if frame.locals[instr.arg] is UNBOUND:
        raise unbound_local(frame, instr.arg)
    frame.locals[instr.arg] = UNBOUND


@op
def MAKE_CELL(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.locals[instr.arg]
    cell = types.CellType() if value is UNBOUND else types.CellType(value)
    frame.locals[instr.arg] = cell


@op
def COPY_FREE_VARS(vm: VM, frame: Frame, instr: Instruction) -> None:
    assert frame.func is not None
    for slot, cell in zip(frame.unit.free_slots, vm.closure_of(frame.func), strict=True):
        frame.locals[slot] = cell


@op
def LOAD_CLOSURE(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(frame.locals[instr.arg])


def read_cell(frame: Frame, slot: int) -> Any:
    cell = frame.locals[slot]
    try:
        value = cell.cell_contents
    except ValueError:
        return UNBOUND
    if type(value) is Box:
        value = cell.cell_contents = value.force()
    return value


def unbound_cell(frame: Frame, slot: int) -> Raised:
    name = frame.unit.local_names[slot]
    if slot in frame.unit.free_slots:
        return Raised(NameError(
            f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"))
    return unbound_local(frame, slot)


@op
def LOAD_DEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = read_cell(frame, instr.arg)
    if value is UNBOUND:
        raise unbound_cell(frame, instr.arg)
    frame.stack.append(value)


@op
def STORE_DEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    vm.heap.note_write(frame.locals[instr.arg])
    frame.locals[instr.arg].cell_contents = frame.stack.pop()


@op
def DELETE_DEREF(vm: VM, frame: Frame, instr: Instruction) -> None:
    if read_cell(frame, instr.arg) is UNBOUND:
        raise unbound_cell(frame, instr.arg)
    vm.heap.note_write(frame.locals[instr.arg])
    del frame.locals[instr.arg].cell_contents
