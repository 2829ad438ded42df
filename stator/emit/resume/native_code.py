"""Resume functions: a code object that starts in the middle of another.

    resume_code(code, index, slots, kinds)  ->  code of f(values): restore locals and stack, jump to `index`

Used where a continuation is not compiled: the original instructions run natively behind a prologue.  The values
come in one list, locals first, then the stack from the bottom up; the prologue empties it, so that the frame alone
holds them.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import Any

from stator.code.decode import decode
from stator.code.encode import encode_parts
from stator.code.instruction import ExceptionEntry, Instruction
from stator.code.opcodes import BY_NAME, Operand

_SIGNATURE_FLAGS = 0x04 | 0x08  # varargs, varkeywords
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x200


class SlotKind(enum.Enum):
    """What a place of the value stack holds."""

    VALUE = "value"
    NULL = "null"
    EXC_INFO = "exc_info"  # saved by PUSH_EXC_INFO; the value given is the exception being handled


def resume_code(code: types.CodeType, index: int, slots: Sequence[int], kinds: Sequence[SlotKind], *,
                raising: bool = False) -> types.CodeType:
    """Code that takes one list and goes on at instruction `index`, or raises the list's last value there."""
    unit = decode(code)
    shift = 0 if code.co_nlocals else 1  # the list needs a local slot of its own
    body = [_shifted(instruction, shift) for instruction in unit.instructions]
    consts = list(code.co_consts)
    prologue: list[Instruction] = []
    if code.co_freevars:
        prologue.append(Instruction("COPY_FREE_VARS", len(code.co_freevars)))
    if code.co_flags & _GENERATOR_FLAGS:
        prologue += [Instruction("RETURN_GENERATOR", 0), Instruction("POP_TOP", 0)]
    prologue.append(Instruction("RESUME", 0))
    position = len(slots)
    for kind in kinds:
        if kind is SlotKind.NULL:
            prologue.append(Instruction("PUSH_NULL", 0))
            continue
        prologue += _load(position, consts)
        position += 1
        if kind is SlotKind.EXC_INFO:
            prologue += [Instruction("PUSH_EXC_INFO", 0), Instruction("POP_TOP", 0)]
    free = set(unit.free_slots)
    for number, slot in enumerate(slots):
        if slot not in free and slot + shift:
            prologue += [*_load(number, consts), Instruction("STORE_FAST", slot + shift)]
    if raising:
        prologue += _load(position, consts)
    prologue += _give_up_list(slots, consts, shift)
    table: list[ExceptionEntry] = []
    if raising:
        prologue.append(Instruction("RAISE_VARARGS", 1, positions=unit.instructions[index].positions))
        entry = unit.instructions[index].handler
        if entry is not None:  # it is raised under that instruction's handler, and on its line
            at = len(prologue) - 1
            table.append(ExceptionEntry(at, at + 1, -entry.target - 1, entry.depth, entry.lasti))
    else:
        prologue.append(Instruction("JUMP_FORWARD", 0, target=-1))
    moved = len(prologue)
    for instruction in body:
        if instruction.target is not None:
            instruction.target += moved
    if not raising:
        prologue[-1].target = moved + index
    table += [ExceptionEntry(e.start + moved, e.end + moved, e.target + moved, e.depth, e.lasti)
              for e in unit.exception_table]
    if raising and table and table[0].target < 0:
        table[0] = table[0]._replace(target=-table[0].target - 1 + moved)
    names: dict[str, Any] = {"co_varnames": (".values",), "co_nlocals": 1} if shift else {}
    return encode_parts(code.replace(**names) if names else code, prologue + body, table,
                        co_consts=tuple(consts), co_argcount=1, co_posonlyargcount=0, co_kwonlyargcount=0,
                        co_flags=code.co_flags & ~_SIGNATURE_FLAGS)


def _give_up_list(slots: Sequence[int], consts: list[Any], shift: int) -> list[Instruction]:
    """Empty the list in local 0, and put there what the frame has in it."""
    first = _load(list(slots).index(0), consts) if 0 in slots and not shift else []
    consts.append(None)
    end = Instruction("LOAD_CONST", len(consts) - 1)
    emptied = [Instruction("LOAD_FAST", 0), end, end.copy(), Instruction("BUILD_SLICE", 2),
               Instruction("DELETE_SUBSCR", 0)]
    return [*first, *emptied, Instruction("STORE_FAST" if first else "DELETE_FAST", 0)]


def _shifted(instruction: Instruction, shift: int) -> Instruction:
    copy = instruction.copy()
    if shift and BY_NAME[copy.opname].operand is Operand.SLOT:
        copy.arg = (copy.arg or 0) + shift
    return copy


def _load(position: int, consts: list[Any]) -> list[Instruction]:
    """Push values[position]."""
    number = next((at for at, const in enumerate(consts) if type(const) is int and const == position), len(consts))
    if number == len(consts):
        consts.append(position)
    return [Instruction("LOAD_FAST", 0), Instruction("LOAD_CONST", number), Instruction("BINARY_SUBSCR", 0)]
