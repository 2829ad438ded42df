"""Write a code object.   instructions by index, exception table  ->  types.CodeType

Bytes come from each instruction's opname, raw `arg`, `target` and `positions`; other fields are not read.  Names,
constants and flags come from a template code object, or from keyword arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from .instruction import CodeUnit, ExceptionEntry, Instruction, Positions
from .opcodes import BACKWARD_JUMPS, BY_NAME, EXTENDED_ARG, JUMPS, VERSION, Opcode
from .opcodes_since_314 import SPELLINGS, SUBSCRIPT
from .stack_effects import max_depth


def encode_parts(template: CodeType, instructions: list[Instruction],
                 exception_table: Sequence[ExceptionEntry] = (), **replacements: Any) -> CodeType:
    """A code object that runs `instructions`; every other field comes from `template` or `replacements`."""
    unit = CodeUnit(template, instructions, list(exception_table), {})
    arguments, sizes = lay_out(instructions)
    fields: dict[str, Any] = {"co_code": _code_bytes(instructions, arguments, sizes),
                              "co_exceptiontable": _exception_bytes(exception_table, sizes),
                              "co_stacksize": max_depth(unit)}
    first_line = replacements.get("co_firstlineno", template.co_firstlineno)
    fields["co_linetable"] = _location_bytes([i.positions for i in instructions], sizes, first_line)
    return template.replace(**(fields | replacements))


def lay_out(instructions: list[Instruction]) -> tuple[list[int], list[int]]:
    """Each instruction's final argument, and its size in code units with prefixes and caches."""
    arguments = [SUBSCRIPT if SUBSCRIPT and instruction.opname == "BINARY_SUBSCR" else instruction.arg or 0
                 for instruction in instructions]
    sizes = [_units(i, argument) for i, argument in zip(instructions, arguments, strict=True)]
    jumps = [index for index, instruction in enumerate(instructions) if instruction.opname in JUMPS]
    # Jumps whose sizes depend on each other can settle in two ways, and CPython does not always take the
    # smaller one. The arguments an unedited list came with already fit, so they are tried first.
    starts = _starts(sizes)
    if all(arguments[index] == _distance(instructions, index, starts) for index in jumps):
        return arguments, sizes
    for index in jumps:
        sizes[index] = _units(instructions[index], 0)
    settled = False
    while not settled:  # sizes only grow from one round to the next, so the rounds end
        settled = True
        starts = _starts(sizes)
        for index in jumps:
            arguments[index] = _distance(instructions, index, starts)
            size = _units(instructions[index], arguments[index])
            if size > sizes[index]:
                sizes[index] = size
                settled = False
    return arguments, sizes


def _distance(instructions: list[Instruction], index: int, starts: list[int]) -> int:
    instruction = instructions[index]
    target = instruction.target
    if target is None or not 0 <= target < len(instructions):
        raise ValueError(f"{instruction.opname} at {index} has no target in range")
    # A jump counts from after its own caches, and its size may still be growing: starts[index + 1] is there.
    distance = starts[target] - starts[index + 1]
    if instruction.opname in BACKWARD_JUMPS:
        distance = -distance
    if distance < 0:
        raise ValueError(f"{instruction.opname} at {index} cannot reach {target}: wrong direction")
    return distance


def opcode_of(instruction: Instruction) -> Opcode:
    own, written = instruction.opname, instruction.written
    return BY_NAME[written if SPELLINGS.get(written) == own else own]


def _units(instruction: Instruction, argument: int) -> int:
    """The size of an instruction with its EXTENDED_ARGs and caches."""
    return (argument > 0xFF) + (argument > 0xFFFF) + (argument > 0xFFFFFF) + 1 + opcode_of(instruction).caches


def _starts(sizes: list[int]) -> list[int]:
    """Where each instruction starts, in code units, and where the last one ends."""
    return list(itertools.accumulate(sizes, initial=0))


def _code_bytes(instructions: list[Instruction], arguments: list[int], sizes: list[int]) -> bytes:
    out = bytearray()
    for instruction, argument, size in zip(instructions, arguments, sizes, strict=True):
        opcode = opcode_of(instruction)
        for shift in range(8 * (size - 1 - opcode.caches), 0, -8):
            out += bytes((EXTENDED_ARG, argument >> shift & 0xFF))
        out += bytes((opcode.number, argument & 0xFF))
        out += bytes(2 * opcode.caches)
    return bytes(out)


def _exception_bytes(exception_table: Iterable[ExceptionEntry], sizes: list[int]) -> bytes:
    starts = _starts(sizes)
    out = bytearray()
    for entry in exception_table:
        if not 0 <= entry.start < entry.end <= len(sizes) or not 0 <= entry.target < len(sizes):
            raise ValueError(f"{entry} does not fit {len(sizes)} instructions")
        start, end = starts[entry.start], starts[entry.end]
        at = len(out)
        for number in (start, end - start, starts[entry.target], entry.depth << 1 | entry.lasti):
            out += _big_endian_varint(number)
        out[at] |= 0x80  # marks the first byte of an entry, for CPython's binary search
    return bytes(out)


def _big_endian_varint(number: int) -> bytes:
    digits = [number & 63]
    while number := number >> 6:
        digits.append(number & 63 | 64)
    return bytes(reversed(digits))


def _little_endian_varint(number: int) -> bytes:
    return bytes((number,)) if number < 64 else bytes((number & 63 | 64,)) + _little_endian_varint(number >> 6)


def _signed_varint(number: int) -> bytes:
    return _little_endian_varint(-number << 1 | 1 if number < 0 else number << 1)


def _location_bytes(places: list[Positions | None], sizes: list[int], first_line: int) -> bytes:
    """co_linetable (CPython's Objects/locations.md): entries of up to eight code units each."""
    runs: list[tuple[Positions | None, int]] = []
    for place, size in zip(places, sizes, strict=True):
        # 3.11 starts a run at every instruction, later versions where the location changes.
        if VERSION >= (3, 12) and runs and runs[-1][0] == place:
            runs[-1] = (place, runs[-1][1] + size)
        else:
            runs.append((place, size))
    out = bytearray()
    line = first_line
    for place, size in runs:
        while size > 0:
            length = min(size, 8)
            out += _location_entry(place, length, line)
            size -= length
            if place is not None and place[0] is not None:
                line = place[0]
    return bytes(out)


def _location_entry(place: Positions | None, length: int, previous_line: int) -> bytes:
    line, last, column, end_column = place or (None, None, None, None)
    if line is None:
        return _entry(15, length)
    step = line - previous_line
    end_line = line if last is None else last
    if column is None or end_column is None:
        if end_line == line:
            return _entry(13, length) + _signed_varint(step)
    elif end_line == line:
        if step == 0 and column < 80 and 0 <= end_column - column < 16:
            return _entry(column >> 3, length) + bytes(((column & 7) << 4 | end_column - column,))
        if 0 <= step < 3 and column < 128 and end_column < 128:
            return _entry(10 + step, length) + bytes((column, end_column))
    numbers = (end_line - line, 0 if column is None else column + 1, 0 if end_column is None else end_column + 1)
    return _entry(14, length) + _signed_varint(step) + b"".join(map(_little_endian_varint, numbers))


def _entry(kind: int, length: int) -> bytes:
    return bytes((0x80 | kind << 3 | length - 1,))
