"""Stack effects of opcodes, declared once, and depths of the value stack.

    BINARY_OP: left right -- result          as in CPython's bytecodes.c: inputs -- outputs
    BUILD_LIST: values*oparg -- list         as many values as the operand says
    FOR_ITER: iterator -- iterator value; jump: --      where a jump leaves something else

In: an opcode's name and its operand.  Out: how many values it takes and leaves; CodeUnit  ->  depths, co_stacksize.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .instruction import CodeUnit, Instruction
from .opcodes import ALL_OPNAMES, NO_FALLTHROUGH, VERSION

Count = Callable[[int], int]


class StackEffect(NamedTuple):
    pops: Count
    pushes: Count
    pushes_when_jumping: Count


_ALL_VERSIONS = """
    CACHE NOP RESERVED EXTENDED_ARG RESUME SETUP_ANNOTATIONS DELETE_NAME DELETE_GLOBAL DELETE_FAST DELETE_DEREF: --
    JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT KW_NAMES MAKE_CELL COPY_FREE_VARS RETURN_CONST: --
    ENTER_EXECUTOR SWAP: --

    LOAD_CONST LOAD_NAME LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF: -- value
    LOAD_LOCALS LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR PUSH_NULL COPY: -- value
    LOAD_FAST_LOAD_FAST: -- first second
    LOAD_GLOBAL: -- null*(oparg&1) value
    LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF: namespace -- value
    LOAD_METHOD: owner -- method self
    POP_TOP STORE_NAME STORE_FAST STORE_GLOBAL STORE_DEREF PRINT_EXPR IMPORT_STAR: value --
    STORE_FAST_STORE_FAST: first second --
    STORE_FAST_LOAD_FAST: stored -- loaded
    STORE_ATTR: value owner --
    DELETE_ATTR: owner --
    STORE_SUBSCR: value container key --
    STORE_SLICE: value container start stop --
    DELETE_SUBSCR: container key --

    UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL FORMAT_SIMPLE CONVERT_VALUE: value -- result
    LIST_TO_TUPLE ASYNC_GEN_WRAP CALL_INTRINSIC_1 GET_ITER GET_YIELD_FROM_ITER GET_AITER GET_AWAITABLE: value -- result
    BINARY_OP BINARY_SUBSCR COMPARE_OP IS_OP CONTAINS_OP CALL_INTRINSIC_2 FORMAT_WITH_SPEC: left right -- result
    BINARY_SLICE: container start stop -- result
    FORMAT_VALUE: value spec*(oparg>>2&1) -- text
    BUILD_INTERPOLATION: value text spec*(oparg&1) -- interpolation
    BUILD_TEMPLATE: strings interpolations -- template

    BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_STRING: values*oparg -- made
    BUILD_MAP: keys_and_values*(2*oparg) -- made
    BUILD_CONST_KEY_MAP: values*oparg keys -- made
    BUILD_SLICE: start stop step*(oparg==3) -- made
    LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE: made rest*(oparg-1) value -- made rest*(oparg-1)
    MAP_ADD: made rest*(oparg-1) key value -- made rest*(oparg-1)
    UNPACK_SEQUENCE: sequence -- values*oparg
    UNPACK_EX: sequence -- before*(oparg&255) rest after*(oparg>>8)

    POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE: value --
    POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE: value --
    POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE: value --
    POP_JUMP_BACKWARD_IF_NOT_NONE: value --
    JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP: value --; jump: value
    RETURN_VALUE INTERPRETER_EXIT: value --
    RETURN_GENERATOR: -- sent
    YIELD_VALUE: value -- sent
    SEND: receiver value -- receiver result

    CALL: callable self_or_null args*oparg -- result
    CALL_KW: callable self_or_null args*oparg names -- result
    CALL_FUNCTION_EX: null callable args kwargs*(oparg&1) -- result
    LOAD_ATTR: owner -- value self_or_null*(oparg&1)
    LOAD_SPECIAL: owner -- method self_or_null
    LOAD_SUPER_ATTR: super class self -- value self_or_null*(oparg&1)
    MAKE_FUNCTION: code -- function
    SET_FUNCTION_ATTRIBUTE: value function -- function
    IMPORT_NAME: level fromlist -- module
    IMPORT_FROM: module -- module value

    RAISE_VARARGS: values*oparg --
    PUSH_EXC_INFO: exception -- previous exception
    POP_EXCEPT: previous --
    RERAISE: exception --
    CHECK_EXC_MATCH: exception type -- exception matched
    CHECK_EG_MATCH: group type -- rest matched
    PREP_RERAISE_STAR: original raised -- exception
    BEFORE_WITH BEFORE_ASYNC_WITH: manager -- exit entered
    WITH_EXCEPT_START: -- result
    END_ASYNC_FOR: iterator exception --
    CLEANUP_THROW: receiver value exception -- none value
    END_SEND: receiver value -- value
    EXIT_INIT_CHECK: none --
    GET_ANEXT: iterator -- iterator awaitable
    FOR_ITER: iterator -- iterator value
    END_FOR: sentinel --

    GET_LEN: subject -- subject length
    MATCH_MAPPING MATCH_SEQUENCE: subject -- subject matched
    MATCH_KEYS: subject keys -- subject keys values
    MATCH_CLASS: subject type names -- attributes
"""

_BY_VERSION = {
    (3, 11): """
        PRECALL: --
        LOAD_ATTR: owner -- value
        MAKE_FUNCTION: extras*((oparg&15).bit_count()) code -- function
        FOR_ITER: iterator -- iterator value; jump: --
        SEND: receiver value -- receiver result; jump: result
    """,
    (3, 12): """
        MAKE_FUNCTION: extras*((oparg&15).bit_count()) code -- function
        END_FOR: iterator sentinel --
    """,
    (3, 13): "",
    (3, 14): """
        CALL_FUNCTION_EX: callable null args kwargs_or_null -- result
        BUILD_SLICE: values*oparg -- made
        RETURN_VALUE: value -- result
    """,
}


def _count(names: str) -> Count:
    """`values*oparg keys`  ->  a function of the operand."""
    terms = [name.partition("*")[2] or "1" for name in names.split()]
    if all(term == "1" for term in terms):
        number = len(terms)
        return lambda oparg: number
    return eval(f"lambda oparg: {' + '.join(f'({term})' for term in terms)}")  # noqa: S307  our own text above


def _declared(text: str) -> dict[str, StackEffect]:
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        names, _, effect = line.partition(": ")
        effect, _, jump = effect.partition("; jump: ")
        inputs, _, outputs = effect.partition("--")
        counts = StackEffect(_count(inputs), _count(outputs), _count(jump.replace("--", "") if jump else outputs))
        found.update(dict.fromkeys(names.split(), counts))
    return found


EFFECTS: dict[str, StackEffect] = _declared(_ALL_VERSIONS) | _declared(_BY_VERSION[VERSION])
for _version in _BY_VERSION.keys() - {VERSION}:  # what runs an opcode natively is tested on every version
    EFFECTS = _declared(_BY_VERSION[_version]) | EFFECTS
if _unknown := ALL_OPNAMES - EFFECTS.keys():
    raise ImportError(f"opcodes without a declared stack effect: {sorted(_unknown)}")


def pops(opname: str, arg: int) -> int:
    return EFFECTS[opname].pops(arg)


def net_effect(opname: str, arg: int, jump: bool) -> int:
    """How many values more than before are on the stack, after falling through or jumping."""
    effect = EFFECTS[opname]
    return (effect.pushes_when_jumping if jump else effect.pushes)(arg) - effect.pops(arg)


def effect(instruction: Instruction, jump: bool) -> int:
    """Net values pushed; RETURN_GENERATOR counts the value that the generator's first resumption pushes."""
    return net_effect(instruction.opname, instruction.arg or 0, jump)


def depths(unit: CodeUnit) -> list[int | None]:
    """The depth before each instruction, None where no path reaches it."""
    return unit.analysis("depths", lambda unit: flow_depths(unit)[0])


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
        instruction, handler = instructions[index], handlers[index]
        if handler is not None:  # it starts with the values kept, perhaps the raising offset, and the exception
            pending.append((handler.target, handler.depth + handler.lasti + 1))
        if instruction.target is not None:
            pending.append((instruction.target, depth + effect(instruction, True)))
        if instruction.opname not in NO_FALLTHROUGH:
            if index + 1 < len(instructions):
                pending.append((index + 1, depth + effect(instruction, False)))
            else:
                conflicts.append(f"instruction {index} runs off the end")
    return found, conflicts


def max_depth(unit: CodeUnit) -> int:
    return max((depth + max(0, effect(instruction, False), effect(instruction, instruction.target is not None))
                for instruction, depth in zip(unit.instructions, depths(unit), strict=True) if depth is not None),
               default=0)
