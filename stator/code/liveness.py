"""Which local slots still matter.   CodeUnit, instruction index  ->  slots read later before being written

A slot is a localsplus index. The answer errs on the side of "live": an exception may leave from any covered
instruction, before that instruction has written anything. Reads that bytecode does not show (`locals()`, a
frame walked by a tracer) are not counted.
"""

from __future__ import annotations

from .instruction import CodeUnit, Instruction
from .opcodes import ALL_OPNAMES, NO_FALLTHROUGH

# A cell's slot holds the cell: storing into it or emptying it needs the cell, so both are reads of the slot.
# DELETE_FAST raises on an unbound slot, so it reads too.
READS: frozenset[str] = ALL_OPNAMES & {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST",
                                       "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF",
                                       "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "MAKE_CELL"}
WRITES: frozenset[str] = ALL_OPNAMES & {"STORE_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"}

UNBINDS: frozenset[str] = ALL_OPNAMES & {"LOAD_FAST_AND_CLEAR", "DELETE_FAST"}


def slots_read_and_written(instruction: Instruction, unit: CodeUnit ) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


def live_locals(unit: CodeUnit, index: int) -> frozenset[int]:
    """Slots whose value before instruction `index` may still be read."""
    mask = unit.analysis("liveness", _live_masks)[index]
    return frozenset(slot for slot in range(unit.nlocalsplus) if mask >> slot & 1)


def live_in_call(unit: CodeUnit, index: int) -> frozenset[int]:
    """Slots that may still be read in a frame whose callee runs, where `index` is the instruction after the call.

    The callee may end in three ways: with a value, as an iterator that is done (FOR_ITER and SEND jump), or with an
    exception, whose handler covers the call and perhaps not the instruction after it.
    """
    live = live_locals(unit, index)
    if index == 0:
        return live
    call, handler = unit.instructions[index - 1], unit.handlers()[index - 1]
    ways = ([] if call.target is None else [call.target]) + ([] if handler is None else [handler.target])
    return live.union(*(live_locals(unit, way) for way in ways))


def bound_locals(unit: CodeUnit, index: int) -> frozenset[int]:
    """Slots that may hold a value before instruction `index`."""
    mask = unit.analysis("bound", _bound_masks)[index]
    return frozenset(slot for slot in range(unit.nlocalsplus) if mask >> slot & 1)


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
            if instruction.target is not None:
                ways.append((instruction.target, after))
            handler = handlers[index]
            if handler is not None:
                ways.append((handler.target, bound[index] | after))
            for way, mask in ways:
                if mask & ~bound[way]:
                    bound[way] |= mask
                    changed = True
    return bound


def _live_masks(unit: CodeUnit) -> list[int]:
    """Backward data flow to a fixpoint, a bit per slot."""
    instructions, handlers = unit.instructions, unit.handlers()
    reads, writes = [], []
    for instruction in instructions:
        read, written = slots_read_and_written(instruction, unit)
        reads.append(_mask(read))
        writes.append(_mask(written))
    live = [0] * len(instructions)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            instruction = instructions[index]
            after = 0
            if instruction.opname not in NO_FALLTHROUGH and index + 1 < len(instructions):
                after = live[index + 1]
            if instruction.target is not None:
                after |= live[instruction.target]
            before = reads[index] | after & ~writes[index]
            handler = handlers[index]
            if handler is not None:
                before |= live[handler.target]
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def _mask(slots: tuple[int, ...]) -> int:
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask
