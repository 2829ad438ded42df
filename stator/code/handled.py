"""Which places of the value stack hold a saved exception.   CodeUnit, index  ->  positions, bottom up

PUSH_EXC_INFO leaves the exception that was handled before on the stack, for POP_EXCEPT to put back.  To CPython it
is a value like any other; whoever rebuilds a frame has to know which it is.
"""

from __future__ import annotations

from .instruction import CodeUnit
from .opcodes import NO_FALLTHROUGH
from .stack import depths, effect

Positions = frozenset[int]


def saved_exceptions(unit: CodeUnit, index: int) -> Positions:
    """The positions (0 is the bottom) that hold a saved exception before instruction `index`."""
    return unit.analysis("saved_exceptions", _flow)[index]


def _flow(unit: CodeUnit) -> list[Positions]:
    instructions, handlers, depth_at = unit.instructions, unit.handlers(), depths(unit)
    found: list[Positions | None] = [None] * len(instructions)
    pending: list[tuple[int, Positions]] = [(0, frozenset())] if instructions else []
    while pending:
        index, places = pending.pop()
        if found[index] is not None:
            continue
        found[index] = places
        instruction, depth, handler = instructions[index], depth_at[index], handlers[index]
        assert depth is not None
        if handler is not None:
            pending.append((handler.target, _below(places, handler.depth)))
        after = _after(instruction.opname, instruction.arg or 0, places, depth)
        if instruction.target is not None:
            pending.append((instruction.target, _below(after, depth + effect(instruction, True))))
        if instruction.opname not in NO_FALLTHROUGH and index + 1 < len(instructions):
            pending.append((index + 1, _below(after, depth + effect(instruction, False))))
    return [places or frozenset() for places in found]


def _below(places: Positions, depth: int) -> Positions:
    return frozenset(place for place in places if place < depth)


def _after(opname: str, arg: int, places: Positions, depth: int) -> Positions:
    """What an instruction moves; that it pops, `_below` sees."""
    top = depth - 1
    if opname == "PUSH_EXC_INFO":
        return places | {top}
    if opname == "COPY":
        return places | {depth} if depth - arg in places else places
    if opname == "SWAP":
        other = depth - arg
        swapped = {top: other, other: top}
        return frozenset(swapped.get(place, place) for place in places)
    return places
