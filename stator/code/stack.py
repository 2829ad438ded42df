"""How deep the value stack is.   Instruction  ->  effect;   CodeUnit  ->  depth everywhere, co_stacksize

The effects are declared here rather than taken from `dis.stack_effect`, because the interpreter checks its
handlers against them and because CPython's own table is silent where a generator starts. A test holds the two
together and names every difference.
"""

from __future__ import annotations

from collections.abc import Callable

from .instruction import CodeUnit, ExceptionEntry, Instruction
from .opcodes import ALL_OPNAMES, NO_FALLTHROUGH, VERSION

_BY_EFFECT: dict[int, str] = {
    -4: "STORE_SLICE",
    -3: "STORE_SUBSCR",
    -2: """MAP_ADD DELETE_SUBSCR STORE_ATTR END_ASYNC_FOR MATCH_CLASS BINARY_SLICE STORE_FAST_STORE_FAST""",
    -1: """POP_TOP SET_ADD LIST_APPEND BINARY_SUBSCR PRINT_EXPR RETURN_VALUE IMPORT_STAR POP_EXCEPT STORE_NAME
        STORE_FAST STORE_GLOBAL STORE_DEREF DELETE_ATTR COMPARE_OP IS_OP CONTAINS_OP BINARY_OP IMPORT_NAME
        PREP_RERAISE_STAR RERAISE LIST_EXTEND SET_UPDATE DICT_MERGE DICT_UPDATE INTERPRETER_EXIT END_SEND
        CLEANUP_THROW CALL_INTRINSIC_2 SET_FUNCTION_ATTRIBUTE FORMAT_WITH_SPEC EXIT_INIT_CHECK
        POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
        POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE
        POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE
        POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP""",
    0: """CACHE NOP RESERVED EXTENDED_ARG RESUME SWAP UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT
        GET_ITER GET_YIELD_FROM_ITER GET_AITER GET_AWAITABLE SETUP_ANNOTATIONS ASYNC_GEN_WRAP YIELD_VALUE
        DELETE_NAME DELETE_GLOBAL DELETE_FAST DELETE_DEREF CHECK_EXC_MATCH CHECK_EG_MATCH JUMP_FORWARD
        JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT KW_NAMES MAKE_CELL COPY_FREE_VARS LIST_TO_TUPLE SEND
        RETURN_CONST CALL_INTRINSIC_1 LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF TO_BOOL
        FORMAT_SIMPLE CONVERT_VALUE STORE_FAST_LOAD_FAST ENTER_EXECUTOR""",
    1: """COPY PUSH_NULL LOAD_BUILD_CLASS LOAD_CONST LOAD_NAME LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR
        LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF LOAD_LOCALS IMPORT_FROM PUSH_EXC_INFO BEFORE_WITH
        BEFORE_ASYNC_WITH LOAD_METHOD LOAD_ASSERTION_ERROR GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS
        GET_ANEXT WITH_EXCEPT_START FOR_ITER RETURN_GENERATOR""",
    2: "LOAD_FAST_LOAD_FAST",
}
_FIXED: dict[str, int] = {
    name: size for size, names in _BY_EFFECT.items() for name in names.split() if name in ALL_OPNAMES
}

_BY_ARGUMENT: dict[str, Callable[[int], int]] = {
    "UNPACK_SEQUENCE": lambda arg: arg - 1,
    "UNPACK_EX": lambda arg: (arg & 0xFF) + (arg >> 8),
    "BUILD_TUPLE": lambda arg: 1 - arg,
    "BUILD_LIST": lambda arg: 1 - arg,
    "BUILD_SET": lambda arg: 1 - arg,
    "BUILD_STRING": lambda arg: 1 - arg,
    "BUILD_MAP": lambda arg: 1 - 2 * arg,
    "BUILD_CONST_KEY_MAP": lambda arg: -arg,
    "BUILD_SLICE": lambda arg: -2 if arg == 3 else -1,
    "LOAD_GLOBAL": lambda arg: 1 + (arg & 1),
    "RAISE_VARARGS": lambda arg: -arg,
    "CALL_FUNCTION_EX": lambda arg: -2 - (arg & 1),
    "FORMAT_VALUE": lambda arg: -1 if arg & 4 else 0,
}

# Where the effect differs when the jump is taken.
_WHEN_JUMPING: dict[str, int]
if VERSION == (3, 11):
    _BY_ARGUMENT |= {
        "PRECALL": lambda arg: -arg,
        "CALL": lambda arg: -1,
        "LOAD_ATTR": lambda arg: 0,
        "MAKE_FUNCTION": lambda arg: -(arg & 15).bit_count(),
    }
    _WHEN_JUMPING = {"FOR_ITER": -1, "SEND": -1, "JUMP_IF_FALSE_OR_POP": 0, "JUMP_IF_TRUE_OR_POP": 0}
elif VERSION == (3, 12):
    # An exhausted FOR_ITER leaves iterator and sentinel for END_FOR; SEND leaves both for END_SEND.
    _BY_ARGUMENT |= {
        "CALL": lambda arg: -1 - arg,
        "LOAD_ATTR": lambda arg: arg & 1,
        "LOAD_SUPER_ATTR": lambda arg: (arg & 1) - 2,
        "MAKE_FUNCTION": lambda arg: -(arg & 15).bit_count(),
    }
    _FIXED |= {"END_FOR": -2}
    _WHEN_JUMPING = {}
else:
    _BY_ARGUMENT |= {
        "CALL": lambda arg: -1 - arg,
        "CALL_KW": lambda arg: -2 - arg,
        "LOAD_ATTR": lambda arg: arg & 1,
        "LOAD_SUPER_ATTR": lambda arg: (arg & 1) - 2,
    }
    _FIXED |= {"END_FOR": -1, "MAKE_FUNCTION": 0}  # POP_TOP after END_FOR takes the iterator
    _WHEN_JUMPING = {}


def opcode_effect(opname: str, arg: int, jump: bool) -> int:
    """Net values pushed by `opname` with raw operand `arg`, falling through or jumping."""
    if jump and opname in _WHEN_JUMPING:
        return _WHEN_JUMPING[opname]
    fixed = _FIXED.get(opname)
    return _BY_ARGUMENT[opname](arg) if fixed is None else fixed


def effect(instruction: Instruction, jump: bool) -> int:
    """Net values pushed by `instruction`, falling through or (where it can) jumping.

    RETURN_GENERATOR counts the value that the generator's first resumption pushes.
    """
    return opcode_effect(instruction.opname, instruction.arg or 0, jump)


def handler_depth(entry: ExceptionEntry) -> int:
    """The depth where a handler starts: what is kept, the raising offset if asked for, the exception."""
    return entry.depth + entry.lasti + 1


def depths(unit: CodeUnit) -> list[int | None]:
    """The depth before each instruction, None where no path reaches it."""
    return unit.analysis("depths", _depths_alone)


def _depths_alone(unit: CodeUnit) -> list[int | None]:
    return flow_depths(unit)[0]


def flow_depths(unit: CodeUnit) -> tuple[list[int | None], list[str]]:
    """The depth before each instruction by following every path, and where two paths disagree."""
    instructions, handlers = unit.instructions, unit.handlers()
    found: list[int | None] = [None] * len(instructions)
    conflicts: list[str] = []
    pending = [(0, 0)] if instructions else []
    while pending:
        index, depth = pending.pop()
        known = found[index]
        if known is not None:
            if known != depth:
                conflicts.append(f"instruction {index} is reached with depths {known} and {depth}")
            continue
        found[index] = depth
        instruction = instructions[index]
        handler = handlers[index]
        if handler is not None:
            pending.append((handler.target, handler_depth(handler)))
        if instruction.target is not None:
            pending.append((instruction.target, depth + effect(instruction, True)))
        if instruction.opname not in NO_FALLTHROUGH:
            if index + 1 < len(instructions):
                pending.append((index + 1, depth + effect(instruction, False)))
            else:
                conflicts.append(f"instruction {index} runs off the end")
    return found, conflicts


def max_depth(unit: CodeUnit) -> int:
    """The co_stacksize that `unit` needs."""
    found = depths(unit)
    deepest = 0
    for instruction, depth in zip(unit.instructions, found, strict=True):
        if depth is None:
            continue
        deepest = max(deepest, depth, depth + effect(instruction, False))
        if instruction.target is not None:
            deepest = max(deepest, depth + effect(instruction, True))
    return deepest
