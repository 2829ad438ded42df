"""Opcodes of the running CPython.   opcode/dis tables  ->  names, operand kinds, cache sizes, jumps

Differences of opcodes between CPython 3.11, 3.12, 3.13 and 3.14 are in this module and in `stack_effects`; the rest of
the package, and all of Stator above it, uses names. Opcodes for speed alone: `opcodes_since_314`.
"""

from __future__ import annotations

import dis
import opcode as cpython_opcode
import sys
from enum import IntEnum
from typing import NamedTuple

from .opcodes_since_314 import SPELLINGS, SUBSCRIPT

if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    raise ImportError(f"stator.code reads CPython 3.11 to 3.14 bytecode, not {sys.version.split()[0]}")

VERSION: tuple[int, int] = sys.version_info[:2]
ONE_DICT_OF_LOCALS = VERSION < (3, 13)  # locals() fills one dict of the frame again; since then each call makes one

# Pseudo opcodes (256 and up) exist only inside the compiler; INSTRUMENTED_* and the specialised forms only
# in a running code object's private buffer. `co_code` shows neither, so neither is an opcode here.
WRITTEN_OPNAMES: frozenset[str] = frozenset(
    name for name, code in dis.opmap.items() if code < 256 and not name.startswith("INSTRUMENTED_"))
ALL_OPNAMES: frozenset[str] = (WRITTEN_OPNAMES - SPELLINGS.keys()) | ({"BINARY_SUBSCR"} if SUBSCRIPT else set())

# Opcodes that `decode` folds away or that CPython keeps for itself: no decoded Instruction carries one.
FOLDED_OPNAMES: frozenset[str] = frozenset({"CACHE", "EXTENDED_ARG"})
PRIVATE_OPNAMES: frozenset[str] = ALL_OPNAMES & {"RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK",
                                                 "ENTER_EXECUTOR"}
DECODED_OPNAMES: frozenset[str] = ALL_OPNAMES - FOLDED_OPNAMES - PRIVATE_OPNAMES


class Operand(IntEnum):
    """How an instruction's raw argument is to be read."""

    NONE = 0  # the opcode takes no argument
    NUMBER = 1  # a count, a flag word, a depth: argval is the argument itself
    CONST = 2
    NAME = 3
    NAME_FLAG1 = 4  # name index above one flag bit
    NAME_FLAG2 = 5  # name index above two flag bits (LOAD_SUPER_ATTR)
    SLOT = 6  # localsplus index
    SLOT_PAIR = 7  # two localsplus indexes of four bits each
    COMPARE = 8
    BINARY = 9
    INTRINSIC_1 = 10
    INTRINSIC_2 = 11
    JUMP_FORWARD = 12
    JUMP_BACKWARD = 13
    TRUTH_FLAG = 14  # IS_OP, CONTAINS_OP: the argument is "inverted"
    COMMON_CONST = 15  # one of a few builtins
    SPECIAL_NAME = 16  # one of a few dunder names


class Opcode(NamedTuple):
    """One opcode of the running version."""

    name: str
    number: int
    operand: Operand
    caches: int  # inline cache entries that follow it


COMPARE_OPERATORS: tuple[str, ...] = tuple(dis.cmp_op)
BINARY_OPERATORS: tuple[str, ...] = tuple(symbol for _, symbol in cpython_opcode._nb_ops)  # type: ignore[attr-defined]

INTRINSICS_1: tuple[str, ...]
INTRINSICS_2: tuple[str, ...]
if VERSION == (3, 11):
    COMPARE_SHIFT, COMPARE_BOOL_BIT = 0, 0
    INTRINSICS_1 = INTRINSICS_2 = ()
    FLAGGED_NAMES = {"LOAD_GLOBAL": Operand.NAME_FLAG1}
else:
    COMPARE_SHIFT, COMPARE_BOOL_BIT = (4, 0) if VERSION == (3, 12) else (5, 16)
    INTRINSICS_1 = tuple(cpython_opcode._intrinsic_1_descs)  # type: ignore[attr-defined]
    INTRINSICS_2 = tuple(cpython_opcode._intrinsic_2_descs)  # type: ignore[attr-defined]
    FLAGGED_NAMES = {"LOAD_GLOBAL": Operand.NAME_FLAG1, "LOAD_ATTR": Operand.NAME_FLAG1,
                     "LOAD_SUPER_ATTR": Operand.NAME_FLAG2}

# How three instructions that every version has leave the stack.
#   LOOP_END_SKIP   what an exhausted FOR_ITER, having popped its iterator, skips at its target
#   SEND_KEEPS      whether the end of a delegation leaves the delegate under its result, for END_SEND
#   NULL_LAST       whether the NULL of a call without a receiver is pushed after the callable
#   TAGGED_PLACES   whether the place that raised, which RERAISE goes back to, is no object on the stack
#   EXIT_PLACES     how many places the `__exit__` of a `with` block takes, itself below its receiver
LOOP_END_SKIP, SEND_KEEPS, NULL_LAST, TAGGED_PLACES, EXIT_PLACES = {
    (3, 11): (0, False, False, False, 1), (3, 12): (1, True, False, False, 1), (3, 13): (2, True, True, False, 1),
    (3, 14): (2, True, True, True, 2)}[VERSION]

SLOT_PAIRS: frozenset[str] = WRITTEN_OPNAMES & {"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST",
                                                "LOAD_FAST_BORROW_LOAD_FAST_BORROW"}

# The distance that 3.14's END_ASYNC_FOR has is for those who count branches: it jumps nowhere.
JUMPS: frozenset[str] = frozenset(
    dis.opname[code] for code in [*dis.hasjrel, *dis.hasjabs]) & ALL_OPNAMES - {"END_ASYNC_FOR"}
BACKWARD_JUMPS: frozenset[str] = frozenset(name for name in JUMPS if "BACKWARD" in name)
UNCONDITIONAL_JUMPS: frozenset[str] = JUMPS & {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
# Control never reaches the next instruction: it leaves the frame or goes to a handler.
FRAME_EXITS: frozenset[str] = ALL_OPNAMES & {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE",
                                             "INTERPRETER_EXIT"}
NO_FALLTHROUGH: frozenset[str] = UNCONDITIONAL_JUMPS | FRAME_EXITS


def _has_argument(code: int) -> bool:
    if VERSION == (3, 11):
        return code >= dis.HAVE_ARGUMENT
    return code in cpython_opcode.hasarg  # type: ignore[attr-defined]


def _operand(name: str, code: int) -> Operand:
    special = {**FLAGGED_NAMES, **dict.fromkeys(SLOT_PAIRS, Operand.SLOT_PAIR), "KW_NAMES": Operand.CONST,
               "COMPARE_OP": Operand.COMPARE, "BINARY_OP": Operand.BINARY,
               "CALL_INTRINSIC_1": Operand.INTRINSIC_1, "CALL_INTRINSIC_2": Operand.INTRINSIC_2,
               "IS_OP": Operand.TRUTH_FLAG, "CONTAINS_OP": Operand.TRUTH_FLAG, "LOAD_SMALL_INT": Operand.NUMBER,
               "LOAD_COMMON_CONSTANT": Operand.COMMON_CONST, "LOAD_SPECIAL": Operand.SPECIAL_NAME}
    if name in special:
        return special[name]
    if name in JUMPS:
        return Operand.JUMP_BACKWARD if name in BACKWARD_JUMPS else Operand.JUMP_FORWARD
    for kind, codes in ((Operand.CONST, dis.hasconst), (Operand.NAME, dis.hasname),
                        (Operand.SLOT, (*dis.haslocal, *dis.hasfree))):
        if code in codes:
            return kind
    return Operand.NUMBER if _has_argument(code) else Operand.NONE


def _cache_entries(name: str, code: int) -> int:
    entries = cpython_opcode._inline_cache_entries  # type: ignore[attr-defined]
    if VERSION >= (3, 13):
        return int(entries.get(name, 0))  # keyed by name since 3.13, a list by number before
    return int(entries[code])


BY_NAME: dict[str, Opcode] = {
    name: Opcode(name, number, _operand(name, number), _cache_entries(name, number))
    for name, number in sorted(dis.opmap.items())
    if name in WRITTEN_OPNAMES
}
BY_NAME |= {"BINARY_SUBSCR": BY_NAME["BINARY_OP"]._replace(operand=Operand.NUMBER)} if SUBSCRIPT else {}
BY_NUMBER: tuple[Opcode | None, ...] = tuple(BY_NAME.get(dis.opname[code]) for code in range(256))
EXTENDED_ARG: int = dis.opmap["EXTENDED_ARG"]
