"""Read a code object.   types.CodeType  ->  CodeUnit (instructions by index, exception table, slots)

The result is memoised for as long as the code object lives. Code objects compare and hash by value, so the
memo is keyed by identity and an entry goes when its code object does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from stator import _hook

from .instruction import CodeUnit, ExceptionEntry, Instruction, Slots, frame_slots
from .opcodes import (
    BINARY_OPERATORS,
    BY_NUMBER,
    COMPARE_BOOL_BIT,
    COMPARE_OPERATORS,
    COMPARE_SHIFT,
    EXTENDED_ARG,
    INTRINSICS_1,
    INTRINSICS_2,
    Operand,
)
from .opcodes_since_314 import COMMON_CONSTANTS, SPECIAL_NAMES, SPELLINGS, SUBSCRIPT


class MalformedCode(Exception):
    """The bytes of a code object do not follow the running version's format."""


class _Body(NamedTuple):
    """Decoded parts of a code object, without a reference to the code object itself."""

    code: weakref.ref[CodeType]
    instructions: list[Instruction]
    exception_table: list[ExceptionEntry]
    index_of_offset: dict[int, int]
    slots: Slots
    analyses: dict[str, Any]


_bodies: dict[int, _Body] = {}


def decode(code: CodeType) -> CodeUnit:
    """The decoded form of `code`; raises MalformedCode where its bytes make no sense."""
    body = _bodies.get(id(code))
    if body is None or body.code() is not code:
        body = _bodies[id(code)] = _decode_body(code)
    return CodeUnit(code, *body[1:])


def _decode_body(code: CodeType) -> _Body:
    key = id(code)

    def forget(dead: weakref.ref[CodeType]) -> None:
        # The number may already belong to a younger code object with a body of its own.
        body = _bodies.get(key)
        if body is not None and body.code is dead:
            del _bodies[key]

    instructions, index_of_offset = _hook.decode(code, code.co_code, _ROWS, _BY_OPERAND, Instruction, MalformedCode,
                                                 -1 if SUBSCRIPT is None else SUBSCRIPT)
    table = parse_exception_table(code, index_of_offset) if code.co_exceptiontable else []
    for entry in table:
        for instruction in instructions[entry.start : entry.end]:
            instruction.handler = entry
    return _Body(weakref.ref(code, forget), instructions, table, index_of_offset, frame_slots(code), {})


# Operand that is rare -> its value and its flag.
_MEANINGS: dict[Operand, Callable[[int, CodeType], tuple[Any, bool]]] = {
    Operand.NAME_FLAG2: lambda arg, code: (code.co_names[arg >> 2], bool(arg & 1)),
    Operand.SLOT_PAIR: lambda arg, code: ((arg >> 4, arg & 15), False),
    Operand.COMPARE: lambda arg, code: (COMPARE_OPERATORS[arg >> COMPARE_SHIFT], bool(arg & COMPARE_BOOL_BIT)),
    Operand.BINARY: lambda arg, code: (BINARY_OPERATORS[arg], False),
    Operand.TRUTH_FLAG: lambda arg, code: (arg, bool(arg)),
    Operand.INTRINSIC_1: lambda arg, code: (INTRINSICS_1[arg], False),
    Operand.INTRINSIC_2: lambda arg, code: (INTRINSICS_2[arg], False),
    Operand.COMMON_CONST: lambda arg, code: (COMMON_CONSTANTS[arg], False),
    Operand.SPECIAL_NAME: lambda arg, code: (SPECIAL_NAMES[arg], False),
}
_BY_OPERAND = *[_MEANINGS.get(operand) for operand in Operand], "BINARY_SUBSCR"
# By number: the opcode in the bytes, the one that it stands for, its operand, the bytes with those of its caches.
_ROWS: tuple[tuple[str, str, int, int] | None, ...] = tuple([
    None if each is None else (each.name, SPELLINGS.get(each.name, each.name),
                               -1 if each.number == EXTENDED_ARG else int(each.operand), 2 + 2 * each.caches)
    for each in BY_NUMBER])


def parse_exception_table(code: CodeType, index_of_offset: dict[int, int]) -> list[ExceptionEntry]:
    """co_exceptiontable: per entry four big-endian varints, start, length, target, depth and lasti."""
    numbers: list[int] = []
    value = 0
    for byte in code.co_exceptiontable:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    if len(numbers) % 4:
        raise MalformedCode(f"the exception table of {code.co_qualname} is cut short")
    entries: list[ExceptionEntry] = []
    for at in range(0, len(numbers), 4):
        start, length, target, depth_and_lasti = numbers[at : at + 4]
        try:
            begin, end, handler = (index_of_offset[2 * place] for place in (start, start + length, target))
            entries.append(ExceptionEntry(begin, end, handler, depth_and_lasti >> 1, bool(depth_and_lasti & 1)))
        except KeyError as error:
            raise MalformedCode(f"exception entry {at // 4} of {code.co_qualname} leaves the code") from error
    return entries
