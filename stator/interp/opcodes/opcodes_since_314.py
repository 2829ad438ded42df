"""Opcodes of 3.14: `__enter__` and `__exit__` looked up one by one; template strings.

    with manager: ...      ->  LOAD_SPECIAL __exit__, LOAD_SPECIAL __enter__, CALL 0
    t"{x!r:>{n}}"          ->  BUILD_INTERPOLATION, BUILD_TEMPLATE: objects of string.templatelib, made natively
"""

from __future__ import annotations

from stator.code.instruction import Instruction
from stator.host.value_kinds import name_in_errors
from stator.interp.frame import NULL, Frame
from stator.interp.lookup import MISSING, find
from stator.interp.machine import declined, op
from stator.interp.opcodes.exception_opcodes import special_method
from stator.interp.services import VM

_KINDS = {"": "context manager", "a": "asynchronous context manager"}


@op
def LOAD_SPECIAL(vm: VM, frame: Frame, instr: Instruction) -> None:
    owner, name = frame.stack.pop(), instr.argval
    prefix, other = ("a", "") if name.startswith("__a") else ("", "a")
    text = f"'{name_in_errors(type(owner))}' object does not support the {_KINDS[prefix]} protocol (missed {name} method)"
    if find(vm, type(owner), name) is MISSING and all(
            find(vm, type(owner), f"__{other}{verb}__") is not MISSING for verb in ("enter", "exit")):
        text += f" but it supports the {_KINDS[other]} protocol. Did you mean to use '{'async ' if other else ''}with'?"
    method = special_method(vm, owner, name, text)
    frame.stack += (method, NULL)
    if name == "__exit__":
        vm.torch_state.note_block(method)


declined("SB011", "BUILD_TEMPLATE", "BUILD_INTERPOLATION")
