"""Flags of leaves from outside.   the notes of a trace  ->  p.requires_grad = False, before the graph or after it"""

from __future__ import annotations

from dataclasses import dataclass

from stator.emit.services import Rebuilder
from stator.interp.tensors.tensor_bookkeeping import settle_flags


@dataclass
class FlagLines:
    """Statements before the graph, those that take them back where it raises, and statements after it."""

    first: list[str]
    undo: list[str]
    last: list[str]


def write_flags(build: Rebuilder) -> FlagLines:
    lines = FlagLines([], [], [])
    for flag in settle_flags(build.vm):
        leaf = build.outside(build.heap.by_standin[id(flag.leaf)].source)
        put = f"{build.method('requires_grad_')}({leaf}, {{}})"
        if flag.entry is not flag.before:
            lines.first.append(put.format(flag.entry))
            lines.undo.append(put.format(flag.before))
        if flag.final is not flag.entry:
            lines.last.append(put.format(flag.final))
    return lines
