"""Where the two ways out of a branch meet again.   CodeUnit, index of a conditional jump  ->  Region

The meeting place is the jump's immediate post-dominator: the first instruction that every way from the jump to a
`return` goes through, or EXIT where the ways meet only in leaving the frame.  Ways that end in a `raise` do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from .instruction import CodeUnit
from .opcodes import ALL_OPNAMES, FRAME_EXITS, NO_FALLTHROUGH

EXIT = -1
_RETURNS: frozenset[str] = FRAME_EXITS & {"RETURN_VALUE", "RETURN_CONST"}
# What hands control to somebody else in the middle of a frame.
_SUSPENDS: frozenset[str] = ALL_OPNAMES & {"YIELD_VALUE", "RETURN_GENERATOR", "SEND", "GET_AWAITABLE", "ASYNC_GEN_WRAP"}


@dataclass(frozen=True)
class Region:
    """What lies between a branch and the place where its ways meet."""

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
