"""Loads whose value is only handed on.   CodeUnit  ->  indices of LOAD_FASTs that feed a call, a store or a return

    f(x, n)     the loads of x and n: what happens to them is the callee's business
    f(n + 1)    the load of n is not among them: it is looked at here

The answer errs on the side of leaving a load out: only straight-line code with plain stack effects is followed.
"""

from __future__ import annotations

from typing import Any

from .instruction import CodeUnit, Instruction

_POPS = {
    "LOAD_CONST": 0, "LOAD_FAST": 0, "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "PUSH_NULL": 0, "KW_NAMES": 0, "PRECALL": 0,
    "NOP": 0, "LOAD_ATTR": 1, "LOAD_METHOD": 1, "UNARY_NOT": 1, "UNARY_NEGATIVE": 1, "BINARY_OP": 2, "COMPARE_OP": 2,
    "IS_OP": 2, "CONTAINS_OP": 2, "BINARY_SUBSCR": 2, "STORE_FAST": 1, "RETURN_VALUE": 1, "LOAD_FAST_CHECK": 0,
    "BINARY_SLICE": 3, "LOAD_SUPER_ATTR": 3,
}  # fmt: skip
_NO_PUSH = frozenset({"KW_NAMES", "PRECALL", "NOP", "STORE_FAST", "RETURN_VALUE"})
_FLAGGED = frozenset({"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR"})
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK"})
_HANDS_ON = frozenset({"STORE_FAST", "RETURN_VALUE"})


def handed_over(unit: CodeUnit) -> frozenset[int]:
    return unit.analysis("handed over", _compute) if unit.analyses is not None else _compute(unit)


def _compute(unit: CodeUnit) -> frozenset[int]:
    instructions = unit.instructions
    return frozenset(i for i, instr in enumerate(instructions)
                     if instr.opname in _LOADS and _feeds_a_call(instructions, i + 1))


def _feeds_a_call(instructions: list[Instruction], index: int) -> bool:
    place = 1  # of the loaded value, from the top of the stack
    for instr in instructions[index:]:
        name = instr.opname
        pops = (instr.arg or 0) + 2 if name == "CALL" else _POPS.get(name)
        if pops is None:
            return False
        if pops >= place:
            return name in _HANDS_ON or name == "CALL" and place <= (instr.arg or 0)
        place += _pushes(instr) - pops
    return False


def _pushes(instr: Instruction) -> int:
    name = instr.opname
    if name in _NO_PUSH:
        return 0
    if name == "LOAD_METHOD" or name in _FLAGGED and instr.flag:
        return 2
    return 1


def constant_result(unit: CodeUnit) -> tuple[Any, ...]:
    """(value,) of a function that does nothing but return a constant, () of any other."""
    shown = [instr for instr in unit.instructions if instr.opname not in ("RESUME", "NOP")]
    if [instr.opname for instr in shown] in (["LOAD_CONST", "RETURN_VALUE"], ["RETURN_CONST"]):
        return (shown[0].argval,)
    return ()
