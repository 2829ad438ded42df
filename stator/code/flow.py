"""Control flow and data flow of a code object.   CodeUnit, index  ->  Region, live slots, loads that are passed on

Ways out of a branch meet at the jump's immediate post-dominator, or EXIT; ways that end in a `raise` do not count.
A slot is live where it may be read before it is written.  A load is passed on where it only feeds a call, a store or a
return: f(x, n), but not f(n + 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .instruction import CodeUnit, Instruction
from .opcodes import ALL_OPNAMES, FRAME_EXITS, NO_FALLTHROUGH
from .stack_effects import effect, pops

EXIT = -1
_RETURNS: frozenset[str] = FRAME_EXITS & {"RETURN_VALUE", "RETURN_CONST"}
# What hands control to somebody else in the middle of a frame.
_SUSPENDS: frozenset[str] = ALL_OPNAMES & {"YIELD_VALUE", "RETURN_GENERATOR", "SEND", "GET_AWAITABLE", "ASYNC_GEN_WRAP"}


@dataclass(frozen=True)
class Region:
    """Instructions between a branch and the place where its ways meet."""

    join: int  # the index of the instruction where they meet, or EXIT
    loops: bool  # whether one of the ways comes back to the branch itself
    suspends: bool  # whether a generator yields in between


def region_after(unit: CodeUnit, index: int) -> Region | None:
    """The region of the conditional jump at `index`; None where its ways never meet."""
    known: dict[int, Region | None] = unit.analysis("regions", lambda _: {})
    if index not in known:
        known[index] = _region(unit, index)
    return known[index]


def _region(unit: CodeUnit, index: int) -> Region | None:
    dominators = unit.analysis("post-dominators", _post_dominators)
    strict = dominators[index] & ~(1 << index)
    if not strict or strict == _everything(unit) & ~(1 << index):
        return None
    join = next(node for node in range(len(dominators)) if strict >> node & 1 and dominators[node] == strict)
    inside: set[int] = set()
    todo = list(successors(unit, index))
    while todo:
        node = todo.pop()
        if node != join and node not in inside and node < len(unit.instructions):
            inside.add(node)
            todo += successors(unit, node)
    suspends = any(unit.instructions[node].opname in _SUSPENDS for node in inside)
    return Region(EXIT if join == len(unit.instructions) else join, index in inside, suspends)


def successors(unit: CodeUnit, index: int) -> list[int]:
    """Where control can go after an instruction that raises nothing; the number of instructions means: out."""
    instruction = unit.instructions[index]
    if instruction.opname in _RETURNS:
        return [len(unit.instructions)]
    found = [] if instruction.opname in NO_FALLTHROUGH else [index + 1]
    if instruction.target is not None:
        found.append(instruction.target)
    return found


def _everything(unit: CodeUnit) -> int:
    return (1 << len(unit.instructions) + 1) - 1


def _post_dominators(unit: CodeUnit) -> list[int]:
    """For each instruction, and for the way out, the set of those on every way out from it, as bits."""
    count = len(unit.instructions)
    found = [_everything(unit)] * count + [1 << count]
    after = [successors(unit, index) for index in range(count)]
    changed = True
    while changed:
        changed = False
        for index in range(count - 1, -1, -1):
            common = _everything(unit)
            for successor in after[index]:
                common &= found[successor]
            common |= 1 << index
            if common != found[index]:
                found[index], changed = common, True
    return found


# A cell's slot holds the cell: storing into it or emptying it needs the cell, so both are reads of the slot.
# DELETE_FAST raises on an unbound slot, so it reads too.
READS: frozenset[str] = ALL_OPNAMES & {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST",
                                       "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF",
                                       "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "MAKE_CELL"}
WRITES: frozenset[str] = ALL_OPNAMES & {"STORE_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"}
UNBINDS: frozenset[str] = ALL_OPNAMES & {"LOAD_FAST_AND_CLEAR", "DELETE_FAST"}


def slots_read_and_written(instruction: Instruction, unit: CodeUnit) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The slots that one instruction reads before it writes, and those it writes."""
    opname, argval = instruction.opname, instruction.argval
    if opname == "LOAD_FAST_LOAD_FAST":
        return argval, ()
    if opname == "STORE_FAST_STORE_FAST":
        return (), argval
    if opname == "STORE_FAST_LOAD_FAST":
        stored, loaded = argval
        return (() if stored == loaded else (loaded,)), (stored,)
    if opname == "COPY_FREE_VARS":
        return (), unit.free_slots
    return ((argval,) if opname in READS else ()), ((argval,) if opname in WRITES else ())


def _slots(unit: CodeUnit, mask: int) -> frozenset[int]:
    return frozenset(slot for slot in range(unit.nlocalsplus) if mask >> slot & 1)


def live_locals(unit: CodeUnit, index: int) -> frozenset[int]:
    """Slots whose value before instruction `index` may still be read."""
    return _slots(unit, unit.analysis("liveness", _live_masks)[index])


def live_in_call(unit: CodeUnit, index: int) -> frozenset[int]:
    """Slots that may still be read in a frame whose callee runs, where `index` is the instruction after the call."""
    live = live_locals(unit, index)
    if index == 0:
        return live
    call, handler = unit.instructions[index - 1], unit.handlers()[index - 1]
    ways = ([] if call.target is None else [call.target]) + ([] if handler is None else [handler.target])
    return live.union(*(live_locals(unit, way) for way in ways))


def bound_locals(unit: CodeUnit, index: int) -> frozenset[int]:
    """Slots that may hold a value before instruction `index`."""
    return _slots(unit, unit.analysis("bound", _bound_masks)[index])


def _bound_masks(unit: CodeUnit) -> list[int]:
    """Forward data flow to a fixpoint, a bit per slot."""
    instructions, handlers = unit.instructions, unit.handlers()
    bound = [0] * (len(instructions) + 1)
    code = unit.code
    arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    bound[0] = (1 << arguments) - 1
    changed = True
    while changed:
        changed = False
        for index, instruction in enumerate(instructions):
            written = _mask(slots_read_and_written(instruction, unit)[1])
            after = bound[index] & ~written if instruction.opname in UNBINDS else bound[index] | written
            ways = [] if instruction.opname in NO_FALLTHROUGH else [(index + 1, after)]
            ways += [] if instruction.target is None else [(instruction.target, after)]
            if (handler := handlers[index]) is not None:
                ways.append((handler.target, bound[index] | after))
            for way, mask in ways:
                if mask & ~bound[way]:
                    bound[way] |= mask
                    changed = True
    return bound


def _live_masks(unit: CodeUnit) -> list[int]:
    """Backward data flow to a fixpoint, a bit per slot."""
    instructions, handlers = unit.instructions, unit.handlers()
    used = [tuple(map(_mask, slots_read_and_written(instruction, unit))) for instruction in instructions]
    live = [0] * len(instructions)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            instruction, handler, (reads, writes) = instructions[index], handlers[index], used[index]
            after = 0
            if instruction.opname not in NO_FALLTHROUGH and index + 1 < len(instructions):
                after = live[index + 1]
            if instruction.target is not None:
                after |= live[instruction.target]
            before = reads | after & ~writes
            if handler is not None:
                before |= live[handler.target]
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def _mask(slots: tuple[int, ...]) -> int:
    return sum(1 << slot for slot in set(slots))


_FOLLOWED = frozenset("""
    LOAD_CONST LOAD_FAST LOAD_GLOBAL LOAD_DEREF PUSH_NULL KW_NAMES PRECALL NOP LOAD_ATTR LOAD_METHOD UNARY_NOT
    UNARY_NEGATIVE BINARY_OP COMPARE_OP IS_OP CONTAINS_OP BINARY_SUBSCR STORE_FAST RETURN_VALUE LOAD_FAST_CHECK
    BINARY_SLICE LOAD_SUPER_ATTR CALL CALL_KW LOAD_FAST_LOAD_FAST
    """.split())
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST"})
_CALLS = {"CALL": 0, "CALL_KW": 1}  # and the operands above the arguments
_HANDS_ON = frozenset({"STORE_FAST", "RETURN_VALUE"})


def handed_over(unit: CodeUnit) -> frozenset[int]:
    """Indices of such loads; of a load of two, `~index` for the first value."""
    return unit.analysis("handed over", _compute) if unit.analyses is not None else _compute(unit)


def _compute(unit: CodeUnit) -> frozenset[int]:
    numbered = list(enumerate(instructions := unit.instructions))
    found = {i for i, instr in numbered if instr.opname in _LOADS and _feeds_a_call(instructions, i + 1, 1)}
    return frozenset(found | {~i for i, instr in numbered if instr.opname == "LOAD_FAST_LOAD_FAST"
                              and _feeds_a_call(instructions, i + 1, 2)})


def _feeds_a_call(instructions: list[Instruction], index: int, place: int) -> bool:
    """`place`: that of the loaded value, from the top of the stack."""
    for instr in instructions[index:]:
        name = instr.opname
        if name not in _FOLLOWED:
            return False
        if pops(name, instr.arg or 0) >= place:
            return name in _HANDS_ON or name in _CALLS and 0 < place - _CALLS[name] <= (instr.arg or 0)
        place += effect(instr, False)
    return False


def constant_result(unit: CodeUnit) -> tuple[Any, ...]:
    """(value,) of a function that does nothing but return a constant, () of any other."""
    shown = [instr for instr in unit.instructions if instr.opname not in ("RESUME", "NOP")]
    if [instr.opname for instr in shown] in (["LOAD_CONST", "RETURN_VALUE"], ["RETURN_CONST"]):
        return (shown[0].argval,)
    return ()
