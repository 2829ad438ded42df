"""Opcodes of 3.13 that do the work of two.   LOAD_FAST_LOAD_FAST a, b;  TO_BOOL before a jump"""

from __future__ import annotations

from collections.abc import Callable

from stator.code.flow import handed_over
from stator.code.instruction import Instruction
from stator.heap.tracker import Box
from stator.interp.frame import NULL, UNBOUND, Frame
from stator.interp.machine import Handler, op, ops
from stator.interp.objects import operators
from stator.interp.opcodes.flow_opcodes import pop_jump
from stator.interp.opcodes.name_opcodes import unbound_local
from stator.interp.services import VM

_JUMPS = {"POP_JUMP_IF_TRUE": True, "POP_JUMP_IF_FALSE": False}


def _load(frame: Frame, slot: int, index: int) -> None:
    value = frame.locals[slot]
    if type(value) is Box:
        if value.forced or index not in handed_over(frame.unit):
            value = frame.locals[slot] = value.force()
    elif value is UNBOUND:
        raise unbound_local(frame, slot)
    frame.stack.append(value)


def _store(frame: Frame, slot: int, index: int) -> None:
    value = frame.stack.pop()
    frame.locals[slot] = UNBOUND if value is NULL else value


def _pair(first: Callable[[Frame, int, int], None], second: Callable[[Frame, int, int], None]) -> Handler:
    def handler(vm: VM, frame: Frame, instr: Instruction) -> None:
        first(frame, instr.argval[0], ~instr.index)
        second(frame, instr.argval[1], instr.index)
    return handler


@op
def TO_BOOL(vm: VM, frame: Frame, instr: Instruction) -> None:
    at, jump = frame.ip, frame.unit.instructions[frame.ip]
    if jump.opname not in _JUMPS:
        return frame.stack.append(operators.truth(vm, frame.stack.pop()))
    frame.ip += 1  # truth and jump in one, as before 3.13
    try:
        pop_jump(vm, frame, jump, _JUMPS[jump.opname])
    except BaseException:
        frame.ip = at
        raise


ops(
    LOAD_FAST_LOAD_FAST=_pair(_load, _load), STORE_FAST_LOAD_FAST=_pair(_store, _load),
    STORE_FAST_STORE_FAST=_pair(_store, _store),
)
