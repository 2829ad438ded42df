"""Exception handlers of a code object.   CodeUnit, index  ->  the handlers around it, saved exceptions on its stack

Handlers that CPython adds and that raise again are not counted.  A `with` block is known by its `__exit__` on the value
stack, an `except` clause by the global that it names.  PUSH_EXC_INFO leaves the exception handled before on the stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from .flow import successors
from .instruction import CodeUnit, ExceptionEntry
from .opcodes import EXIT_PLACES, NO_FALLTHROUGH
from .stack_effects import depths, effect

_PUTS_BACK = frozenset({"SWAP", "POP_TOP", "STORE_FAST", "STORE_FAST_STORE_FAST", "NOP"})
_ENDS = frozenset({"POP_EXCEPT", "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START"})
Positions = frozenset[int]


def written_handler(unit: CodeUnit, index: int) -> ExceptionEntry | None:
    """The innermost handler around instruction `index` that is not CPython's own."""
    entry = unit.instructions[index].handler
    while entry is not None:
        raised = raised_again(unit, entry)
        if raised is None:
            return entry
        entry = unit.instructions[raised].handler
    return None


def raised_again(unit: CodeUnit, entry: ExceptionEntry) -> int | None:
    """Where a handler of CPython's own raises again; None for a handler of the program."""
    first = unit.instructions[entry.target]
    if first.opname == "CALL_INTRINSIC_1" and first.argval == "INTRINSIC_STOPITERATION_ERROR":
        return entry.target + 1
    if first.opname != "SWAP":
        return None
    after = next((each for each in unit.instructions[entry.target:] if each.opname not in _PUTS_BACK), first)
    return after.index if after.opname == "RERAISE" else None


@dataclass(frozen=True)
class Catcher:
    """One handler; without any of these it may end anything."""

    manager: int | None = None  # where the value stack holds the __exit__ that decides
    name: str | None = None  # of the class that an `except` clause names
    reraises: bool = False  # ends nothing: runs, and raises again


ANYTHING = Catcher()


def catchers(unit: CodeUnit, index: int) -> tuple[Catcher, ...]:
    if unit.instructions[index].handler is None:
        return ()
    known: dict[int, tuple[Catcher, ...]] = unit.analysis("catchers", lambda unit: {})
    if index not in known:
        known[index] = tuple(_around(unit, index))
    return known[index]


def _around(unit: CodeUnit, index: int) -> list[Catcher]:
    found: list[Catcher] = []
    entry = unit.instructions[index].handler
    while entry is not None:
        inner, again = _read(unit, entry)
        found += inner
        if again is None:
            return found
        entry = unit.instructions[again].handler
    return found


def _read(unit: CodeUnit, entry: ExceptionEntry) -> tuple[list[Catcher], int | None]:
    """Exceptions that one handler may end, and where it raises the others again."""
    body, first = unit.instructions, entry.target
    own = raised_again(unit, entry)
    if own is not None:
        return [], own
    if body[first].opname == "COPY" and body[first + 1].opname == "POP_EXCEPT":  # a handler that raises leaves by it
        return [], first + 2
    if body[first + 1].opname == "WITH_EXCEPT_START":
        return [Catcher(entry.depth - EXIT_PLACES)], next(i.index for i in body[first:] if i.opname == "RERAISE")
    names, at = [], first + 1
    while body[at].opname == "LOAD_GLOBAL" and body[at + 1].opname == "CHECK_EXC_MATCH":
        names.append(Catcher(name=body[at].argval))
        at = body[at + 2].target or at
    if names:
        return (names, at) if body[at].opname == "RERAISE" else ([ANYTHING], None)
    again = _only_raises_again(unit, first)
    return ([ANYTHING], None) if again is None else ([Catcher(reraises=True)], again)


def _only_raises_again(unit: CodeUnit, index: int) -> int | None:
    """Where a `finally` block raises again; None for a handler that may do otherwise."""
    seen: set[int] = set()
    waiting, again = [index], None
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if at == len(unit.instructions) or unit.instructions[at].opname in _ENDS:
            return None
        if unit.instructions[at].opname == "RERAISE":
            again = at
        else:
            waiting += successors(unit, at)
    return again


def saved_exceptions(unit: CodeUnit, index: int) -> Positions:
    """The positions (0 is the bottom) that hold a saved exception before instruction `index`."""
    return unit.analysis("saved_exceptions", _flow)[index]


def raised_places(unit: CodeUnit, index: int) -> Positions:
    """The positions that hold the code unit which raised, before instruction `index`."""
    return unit.analysis("raised_places", lambda unit: _flow(unit, units=True))[index]


def _flow(unit: CodeUnit, units: bool = False) -> list[Positions]:
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
            raised = _below(places, handler.depth) | ({handler.depth} if units and handler.lasti else set())
            pending.append((handler.target, raised))
        after = _after(instruction.opname, instruction.arg or 0, places, depth, units)
        if instruction.target is not None:
            pending.append((instruction.target, _below(after, depth + effect(instruction, True))))
        if instruction.opname not in NO_FALLTHROUGH and index + 1 < len(instructions):
            pending.append((index + 1, _below(after, depth + effect(instruction, False))))
    return [places or frozenset() for places in found]


def _below(places: Positions, depth: int) -> Positions:
    return frozenset(place for place in places if place < depth)


def _after(opname: str, arg: int, places: Positions, depth: int, units: bool) -> Positions:
    """Positions after an instruction that moves values; `_below` drops those that it pops."""
    top = depth - 1
    if opname == "PUSH_EXC_INFO" and not units:
        return places | {top}
    if opname == "COPY":
        return places | {depth} if depth - arg in places else places
    if opname == "SWAP":
        other = depth - arg
        swapped = {top: other, other: top}
        return frozenset(swapped.get(place, place) for place in places)
    return places
