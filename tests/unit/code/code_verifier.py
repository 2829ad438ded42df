"""Check a code object before it runs.   CodeUnit or types.CodeType  ->  list of problems (empty: it is sound)

CPython trusts bytecode and crashes on bad bytecode: tests check the code objects that `encode` makes.
"""

from __future__ import annotations

from types import CodeType

from stator.code.decode import MalformedCode, decode
from stator.code.encode import encode_parts, opcode_of
from stator.code.instruction import CodeUnit, Instruction
from stator.code.opcodes import BACKWARD_JUMPS, DECODED_OPNAMES, JUMPS, VERSION, Operand
from stator.code.stack_effects import effect, flow_depths

_NAME_SHIFT = {Operand.NAME: 0, Operand.NAME_FLAG1: 1, Operand.NAME_FLAG2: 2}
# Pairs that CPython takes on trust. A suspended generator looks for the RESUME after its YIELD_VALUE to see
# whether it delegates; an exhausted FOR_ITER skips its target (3.12) or the target and one more (3.13, 3.14) unread.
FOLLOWED_BY: dict[str, str] = {"YIELD_VALUE": "RESUME", **{
    (3, 11): {"PRECALL": "CALL"}, (3, 12): {}, (3, 13): {"END_FOR": "POP_TOP"},
    (3, 14): {"END_FOR": "POP_TOP"}}[VERSION]}
JUMPS_ONTO: dict[str, str] = {} if VERSION == (3, 11) else {"FOR_ITER": "END_FOR"}


def encode(unit: CodeUnit, **replacements: object) -> CodeType:
    """A code object that runs the instructions of a unit."""
    return encode_parts(unit.code, unit.instructions, unit.exception_table, **replacements)


def editable(unit: CodeUnit) -> CodeUnit:
    """A copy whose instructions and exception table may be edited."""
    return CodeUnit(unit.code, [instruction.copy() for instruction in unit.instructions], list(unit.exception_table),
                    dict(unit.index_of_offset))


class BadCode(Exception):
    """A code object that must not run, with every problem found."""

    def __init__(self, where: str, problems: list[str]) -> None:
        super().__init__(f"{where}: " + "; ".join(problems))
        self.problems = problems


def check(subject: CodeUnit | CodeType) -> None:
    """Raise BadCode unless `subject` is sound."""
    problems = verify(subject)
    if problems:
        code = subject if isinstance(subject, CodeType) else subject.code
        raise BadCode(code.co_qualname, problems)


def verify(subject: CodeUnit | CodeType) -> list[str]:
    """Every problem with `subject`; a code object is also held to its own co_stacksize."""
    if isinstance(subject, CodeUnit):
        return _verify_unit(subject, None)
    try:
        unit = decode(subject)
    except MalformedCode as error:
        return [str(error)]
    return _verify_unit(unit, subject.co_stacksize)


def _verify_unit(unit: CodeUnit, stacksize: int | None) -> list[str]:
    if not unit.instructions:
        return ["there are no instructions"]
    problems: list[str] = []
    for index, instruction in enumerate(unit.instructions):
        problems += _operand_problems(index, instruction, unit)
    problems += _table_problems(unit)
    # Following paths through targets that do not exist would only crash.
    return problems or _pair_problems(unit) + _depth_problems(unit, stacksize)


def _operand_problems(index: int, instruction: Instruction, unit: CodeUnit) -> list[str]:
    opname, arg, code = instruction.opname, instruction.arg or 0, unit.code
    if opname not in DECODED_OPNAMES:
        return [f"instruction {index}: no opcode {opname} to run on this version"]
    if opname in JUMPS:
        target = instruction.target
        if target is None or not 0 <= target < len(unit.instructions):
            return [f"instruction {index}: {opname} has no target in range"]
        if (target <= index) != (opname in BACKWARD_JUMPS):
            return [f"instruction {index}: {opname} jumps the wrong way to {target}"]
        return []
    operand = opcode_of(instruction).operand
    if operand in _NAME_SHIFT and arg >> _NAME_SHIFT[operand] >= len(code.co_names):
        name = arg >> _NAME_SHIFT[operand]
        return [f"instruction {index}: {opname} uses {name} of {len(code.co_names)} names"]
    if operand is Operand.CONST and arg >= len(code.co_consts):
        return [f"instruction {index}: {opname} loads {arg} of {len(code.co_consts)} constants"]
    slots = {Operand.SLOT: (arg,), Operand.SLOT_PAIR: (arg >> 4, arg & 15)}.get(operand, ())
    return [f"instruction {index}: {opname} uses slot {slot} of {unit.nlocalsplus}"
            for slot in slots if slot >= unit.nlocalsplus]


def _pair_problems(unit: CodeUnit) -> list[str]:
    problems: list[str] = []
    opnames = [instruction.opname for instruction in unit.instructions]
    for index, (instruction, following) in enumerate(zip(unit.instructions, [*opnames[1:], ""], strict=True)):
        opname, target = instruction.opname, instruction.target
        if FOLLOWED_BY.get(opname, following) != following:
            problems.append(f"instruction {index}: {opname} needs {FOLLOWED_BY[opname]} after it")
        if opname in JUMPS_ONTO and target is not None and opnames[target] != JUMPS_ONTO[opname]:
            problems.append(f"instruction {index}: {opname} needs {JUMPS_ONTO[opname]} at its target")
    return problems


def _table_problems(unit: CodeUnit) -> list[str]:
    problems: list[str] = []
    size = len(unit.instructions)
    previous_end = 0
    for number, entry in enumerate(unit.exception_table):
        if not 0 <= entry.start < entry.end <= size or not 0 <= entry.target < size or entry.depth < 0:
            problems.append(f"exception entry {number} does not fit the code: {entry}")
            continue
        if entry.start < previous_end:  # CPython searches the table as a sorted one
            problems.append(f"exception entry {number} starts before entry {number - 1} ends")
        previous_end = entry.end
    return problems


def _depth_problems(unit: CodeUnit, stacksize: int | None) -> list[str]:
    found, problems = flow_depths(unit)
    steps = zip(unit.instructions, found, unit.handlers(), strict=True)
    for index, (instruction, depth, handler) in enumerate(steps):
        if depth is None:
            continue
        after = [depth + effect(instruction, False)]
        if instruction.target is not None:
            after.append(depth + effect(instruction, True))
        if min(after) < 0:
            problems.append(f"instruction {index}: {instruction.opname} pops an empty stack")
        deepest = max(depth, *after)
        if stacksize is not None and deepest > stacksize:
            problems.append(f"instruction {index}: depth {deepest} is over co_stacksize {stacksize}")
        if handler is not None and handler.depth > depth:
            problems.append(f"instruction {index}: its handler keeps {handler.depth} of {depth} values")
    return problems
