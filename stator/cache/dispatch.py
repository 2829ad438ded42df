"""Distinguish the entries of one function.   guards of each entry  ->  a program that reads a few values

The values by which their guards differ most are read first, and C++ remembers which entry took the last call with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stator import _core
from stator.guards.guard import Guard, Kind
from stator.guards.lower import lower
from stator.source import CallOf, Source, root_of

# With fewer entries than this, the most recently used first is as good.
FEWEST_ENTRIES = 5
MOST_SOURCES = 4
_TELLING = frozenset({Kind.EQUALS, Kind.ID, Kind.TENSOR, Kind.TYPE, Kind.LEN})


def update_dispatch(compiled: Any) -> None:
    """Choose the distinguishing guards again after an entry was added."""
    entries = compiled.entries()
    count = len(entries)
    if count < FEWEST_ENTRIES or (count != FEWEST_ENTRIES and count & (count - 1)):
        return  # looked at again with every doubling
    sources = telling_sources([tag.guards for _, _, tag in entries if tag is not None])
    if not sources:
        compiled.set_dispatch(None)
        return
    lowered = lower((), sources)
    compiled.set_dispatch(_core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, compiled_arity(compiled)))


def compiled_arity(compiled: Any) -> int:
    code = compiled.fn.__code__
    flags = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # CO_VARARGS, CO_VARKEYWORDS
    return int(code.co_argcount + code.co_kwonlyargcount + flags)


def telling_sources(guard_lists: Sequence[Iterable[Guard]]) -> list[Source]:
    """Sources that most entries guard, with many different answers; those that split the entries further come first."""
    answers: dict[Source, dict[int, object]] = {}
    for number, guards in enumerate(guard_lists):
        for guard in guards:
            if guard.kind in _TELLING and not isinstance(root_of(guard.source), CallOf):
                known = answers.setdefault(guard.source, {})
                known[number] = (known.get(number), guard.key[1:])
    chosen: list[Source] = []
    groups: list[object] = [()] * len(guard_lists)
    while len(chosen) < MOST_SOURCES:
        best, split = None, len(set(groups))
        for source, by_entry in answers.items():
            parts = len({(groups[n], by_entry.get(n)) for n in range(len(groups))})
            if parts > split and 2 * len(by_entry) > len(groups):
                best, split = source, parts
        if best is None:
            break
        chosen.append(best)
        groups = [(group, answers[best].get(n)) for n, group in enumerate(groups)]
    return chosen
