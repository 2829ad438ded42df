"""Which exceptions a place of the program is ready for.   CodeUnit, index  ->  the handler that the program wrote

CPython adds handlers of its own: 3.12 wraps the body of a generator in one that turns a StopIteration into an error,
and an inlined comprehension in one that puts its variables back. Both raise again what they got.
"""

from __future__ import annotations

from .instruction import CodeUnit, ExceptionEntry

_PUTS_BACK = frozenset({"SWAP", "POP_TOP", "STORE_FAST", "STORE_FAST_STORE_FAST", "NOP"})


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
    for index in range(entry.target, len(unit.instructions)):
        opname = unit.instructions[index].opname
        if opname == "RERAISE":
            return index
        if opname not in _PUTS_BACK:
            return None
    return None
