"""Who may end an exception that is raised at a place.   CodeUnit, index  ->  the handlers around it, innermost first

Handlers of CPython's own only raise again what they got, and are not among them. A `with` block is
known by the place of its `__exit__` on the value stack, an `except` clause by the global that it names; a
`finally` block raises again; everything else, a `finally` that returns among it, may end anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from .handlers import raised_again
from .instruction import CodeUnit, ExceptionEntry
from .joins import successors

_ENDS = frozenset({"POP_EXCEPT", "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START"})


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
    known = unit.analysis("catchers", _nothing_known)
    if index not in known:
        known[index] = tuple(_around(unit, index))
    return known[index]


def _nothing_known(unit: CodeUnit) -> dict[int, tuple[Catcher, ...]]:
    return {}


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
    """What one handler may end, and where it raises again what it does not."""
    body, first = unit.instructions, entry.target
    own = raised_again(unit, entry)
    if own is not None:
        return [], own
    if body[first].opname == "COPY" and body[first + 1].opname == "POP_EXCEPT":  # a handler that raises leaves by it
        return [], first + 2
    if body[first + 1].opname == "WITH_EXCEPT_START":
        return [Catcher(manager=entry.depth - 1)], _first_reraise(unit, first)
    names, at = [], first + 1
    while body[at].opname == "LOAD_GLOBAL" and body[at + 1].opname == "CHECK_EXC_MATCH":
        names.append(Catcher(name=body[at].argval))
        at = body[at + 2].target or at
    if names:
        return (names, at) if body[at].opname == "RERAISE" else ([ANYTHING], None)
    again = _only_raises_again(unit, first)
    return ([ANYTHING], None) if again is None else ([Catcher(reraises=True)], again)


def _first_reraise(unit: CodeUnit, index: int) -> int:
    return next(i.index for i in unit.instructions[index:] if i.opname == "RERAISE")


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
