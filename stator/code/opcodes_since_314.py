"""Opcodes of 3.14 that stand for others.   LOAD_FAST_BORROW 0  ->  LOAD_FAST 0;  BINARY_OP 26  ->  BINARY_SUBSCR

In: the tables of `opcode` and `dis`.  Out: names to decode such opcodes under, and what their operands number.  Earlier
versions have none of them.  Error texts that differ between versions come from CPython itself.
"""

from __future__ import annotations

import dis
import opcode as cpython_opcode

SPELLINGS: dict[str, str] = {name: meaning for name, meaning in {
    "LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST_LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST", "LOAD_COMMON_CONSTANT": "LOAD_CONST", "NOT_TAKEN": "NOP", "POP_ITER": "POP_TOP",
}.items() if name in dis.opmap}
_OPERATORS = [name for name, _ in cpython_opcode._nb_ops]  # type: ignore[attr-defined]
SUBSCRIPT: int | None = _OPERATORS.index("NB_SUBSCR") if "NB_SUBSCR" in _OPERATORS else None  # of BINARY_OP
COMMON_CONSTANTS: tuple[object, ...] = tuple(getattr(cpython_opcode, "_common_constants", ()))
SPECIAL_NAMES: tuple[str, ...] = tuple(getattr(cpython_opcode, "_special_method_names", ()))


def _refusal_of_in() -> str:
    try:
        0 in object()  # type: ignore[operator]  # noqa: B015
    except TypeError as error:
        return str(error)
    return ""


NOT_A_CONTAINER = _refusal_of_in()  # "argument of type 'object' is not ..."
