"""Generators in results.   a generator stopped at its second yield  ->  a native one that stands there

The native generator is made of the same code, not started, and its frame is filled; so it may refer to itself.
"""

from __future__ import annotations

from typing import Any

from stator.emit.services import Rebuilder
from stator.interp.frame import NULL, UNBOUND, SavedExc
from stator.interp.generators.generators import finish, mark_running, new_generator, stand


def rebuild_generator(build: Rebuilder, value: Any) -> str:
    """An expression for a generator or coroutine that the trace made, or that stands in for one from outside."""
    body = build.vm.generators[id(value)]
    if body.adopted is not None:
        return build.outside(body.adopted)
    writer = build.writer
    code = writer.constant(body.code, "code")
    scope = writer.constant(body.namespace, "globals")
    make = writer.constant(new_generator, "new_generator")
    name = build.variable(value, body.code.co_name,
                          f"{make}({code}, {scope}, {value.__name__!r}, {value.__qualname__!r})")
    write_standing(build, body, name, writer.lines)
    return name


def write_standing(build: Rebuilder, body: Any, name: str, out: list[str]) -> None:
    """Statements that make the native generator `name` stand where its interpreted body does."""
    writer = build.writer
    if body.done or body.running:
        change = writer.constant(finish, "finish_generator") if body.done \
            else writer.constant(mark_running, "mark_running")
        out.append(f"{change}({name})")
        return
    frame = body.frame
    slots = tuple(slot for slot in range(frame.unit.nlocalsplus) if frame.locals[slot] is not UNBOUND)
    parts = [build.value(frame.locals[slot]) for slot in slots]
    kinds: list[str] = []
    for item in frame.stack:
        if item is NULL:
            kinds.append("null")
        elif type(item) is SavedExc:
            kinds.append("exc_info")
            parts += [build.value(item.previous), build.value(item.current)]
        else:
            kinds.append("value")
            parts.append(build.value(item))
    out.append(f"{writer.constant(stand, 'stand')}({name}, {frame.ip}, {slots!r}, {tuple(kinds)!r}, "
               f"({', '.join(parts)}{',' if parts else ''}), {body.started})")
