"""Suspended generators in results.   a generator stopped at its second yield  ->  a native one stopped there

The native generator runs the original code behind a prologue that restores its frame and jumps to the very
YIELD_VALUE it stands at; taking the first item, a dummy, puts it there.
"""

from __future__ import annotations

import types
from typing import Any

from stator.breaks import Break
from stator.code.decode import decode
from stator.emit.native_code import SlotKind, resume_code
from stator.interp.frame import NULL, UNBOUND, SavedExc
from stator.interp.generators import ASYNC_GENERATOR, COROUTINE, ITERABLE_COROUTINE
from stator.interp.parked import park

_codes: dict[Any, types.CodeType] = {}


def rebuild_generator(build: Any, value: Any) -> str:
    """An expression for a generator or coroutine that the trace made and that is not running."""
    body = build.vm.generators[id(value)]
    writer = build.writer
    if body.done:
        return build.variable(value, "generator", f"{writer.constant(finished, 'finished')}()")
    frame = body.frame
    if body.running or frame.code.co_flags & ASYNC_GENERATOR:
        raise Break("SB007", f"a {type(value).__name__} that is running or asynchronous")
    if id(value) in build.building:
        raise Break("SB007", "a generator that refers to itself")
    build.building.add(id(value))
    slots = tuple(slot for slot in range(frame.unit.nlocalsplus) if frame.locals[slot] is not UNBOUND)
    parts = [build.value(frame.locals[slot]) for slot in slots]
    kinds: list[str] = []
    for item in frame.stack:
        if item is NULL:
            kinds.append("null")
            continue
        kinds.append("exc_info" if type(item) is SavedExc else "value")
        parts.append(build.value(item.current if type(item) is SavedExc else item))
    code, scope = writer.constant(frame.code, "code"), writer.constant(frame.scope.namespace, "globals")
    revived = writer.constant(revive, "revive")
    return build.variable(value, frame.code.co_name, (
        f"{revived}({code}, {scope}, {value.__name__!r}, {value.__qualname__!r}, {frame.ip}, {slots!r}, "
        f"{tuple(kinds)!r}, ({', '.join(parts)}{',' if parts else ''}), {body.started})"))


def revive(code: types.CodeType, namespace: dict[str, Any], name: str, qualname: str, index: int,
           slots: tuple[int, ...], kinds: tuple[str, ...], values: tuple[Any, ...], started: bool) -> Any:
    """A native generator whose frame is at `index`: just after a yield, or not started."""
    key = (code, index, slots, kinds, started)
    made = _codes.get(key)
    if made is None:
        places = [SlotKind(kind) for kind in kinds]
        # Started: on to the YIELD_VALUE before `index`, with a dummy to yield.  Else past RETURN_GENERATOR's POP_TOP.
        made = resume_code(code, index, slots, places, parked=True) if parks(code, started) \
            else resume_code(code, index - 1, slots, [*places, SlotKind.VALUE]) if started \
            else resume_code(code, index + 1, slots, places)
        _codes[key] = made
    by_slot = dict(zip(slots, values, strict=False))
    closure = tuple(by_slot[slot] for slot in decode(code).free_slots) or None
    function = types.FunctionType(made, namespace, name, None, closure)
    function.__qualname__ = qualname
    generator = function((*values, None) if started and not parks(code, started) else values)
    if started:
        generator.send(None)
    if type(generator) is types.GeneratorType:
        park(generator, code, namespace, index, slots, kinds, values, started)
    return generator


def parks(code: types.CodeType, started: bool) -> bool:
    """Whether the generator waits in its prologue; one that waits for another must be seen waiting (gi_yieldfrom)."""
    return started and not code.co_flags & (COROUTINE | ITERABLE_COROUTINE | ASYNC_GENERATOR)


def finished() -> Any:
    """A generator that is over."""
    nothing: tuple[Any, ...] = ()
    generator = (item for item in nothing)
    for _ in generator:
        pass
    return generator
