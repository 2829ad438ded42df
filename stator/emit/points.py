"""Resume points: where a call goes on after a graph break.

A point holds the suspended frames' states (data) and knows how to run the rest of the call natively, from the
innermost frame outwards, for when it is not compiled.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stator import events
from stator.code.decode import decode
from stator.emit.native_code import SlotKind, resume_code
from stator.interp.frame import NULL
from stator.interp.suspend import FrameState, names_of

NATIVE_CODES: set[types.CodeType] = set()  # made here to run natively: nobody captures them


@dataclass(frozen=True)
class Taken:
    """What a frame that ran natively leaves to its callers: their values, and its own value or exception."""

    head: tuple[Any, ...]
    handled: BaseException | None  # what the callers are handling
    pushed: Sequence[Any] = ()
    value: Any = None
    error: BaseException | None = None


@dataclass
class ResumePoint:
    """Frames to go on with; `pushes` are the results on the innermost stack, or an exception is raised there."""

    states: list[FrameState]
    pushes: tuple[str, ...]
    handled: bool
    raising: bool
    name: str
    names: list[str] = field(default_factory=list)
    compiled: Any = None
    _native: dict[Any, types.FunctionType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        more = sum(kind == "value" for kind in self.pushes) + self.handled + self.raising
        self.names = names_of(self.states, more)

    # ------------------------------------------------------------------ natively

    def run_innermost(self, values: tuple[Any, ...], invoke: Any) -> Taken:
        """Run the innermost frame to its end; the answer says what its caller goes on with."""
        parts, rest = self._split(values)
        depth = len(self.states) - 1
        state, (slots, stack, made) = self.states[depth], parts[depth]
        head = values[:sum(outer.value_count() for outer in self.states[:-1])]
        outside = self._handled_outside(parts, depth, None)
        try:
            value = handling(outside, lambda: self._call(state, slots, stack, None, invoke))
        except BaseException as error:
            error.__traceback__ = own_frames_dropped(error.__traceback__)
            return Taken(head, outside, error=error)
        return Taken(head, outside, _taken(state.cont, made, value), value)

    def run_native(self, values: tuple[Any, ...]) -> Any:
        """Run the rest of the call as CPython would."""
        parts, rest = self._split(values)
        handled = None
        if self.handled:
            handled = rest[-2] if self.raising else rest[-1]
        value, error = None, None
        if self.raising:
            error = rest[-1]
        first = True
        for depth in range(len(self.states) - 1, -1, -1):
            state, (slots, stack, _) = self.states[depth], parts[depth]
            if first:
                pushed = [] if self.raising else _filled(self.pushes, list(rest))
            else:
                pushed = _taken(self.states[depth + 1].cont, parts[depth + 1][2], value)
            first = False
            outer = self._handled_outside(parts, depth, handled)
            try:
                value = handling(outer, lambda s=state, a=slots, b=stack + pushed, e=error: self._call(s, a, b, e))
                error = None
            except BaseException as raised:
                error = raised
                raised.__traceback__ = own_frames_dropped(raised.__traceback__)
        if error is not None:
            raise error
        return value

    def _call(self, state: FrameState, slots: list[Any], stack: list[Any], error: BaseException | None,
              invoke: Any = None) -> Any:
        kinds = tuple(SlotKind.NULL if item is NULL else SlotKind.EXC_INFO if type(item) is _Handled
                      else SlotKind.VALUE for item in stack)
        key = (state.key(), kinds, error is not None)
        function = self._native.get(key)
        by_slot = dict(zip(state.slots, slots, strict=True))
        closure = tuple(by_slot[slot] for slot in decode(state.code).free_slots) or None
        index = state.index if error is None else max(state.index - 1, 0)
        if function is None:
            code = resume_code(state.code, index, state.slots, kinds, raising=error is not None)
            events.emit(events.ResumeCode(self.name, code))
        else:
            code = function.__code__
        function = types.FunctionType(code, state.namespace, state.code.co_name, None, closure)
        self._native[key] = function
        NATIVE_CODES.add(code)
        values = [*slots, *(item.exc if type(item) is _Handled else item for item in stack if item is not NULL)]
        if error is not None:
            values.append(error)
        return function(tuple(values)) if invoke is None else invoke(function, tuple(values))

    def _split(self, values: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
        """The values by frame: (locals, stack, made object)."""
        parts: list[Any] = []
        at = 0
        for state in self.states:
            slots = list(values[at:at + len(state.slots)])
            at += len(state.slots)
            stack: list[Any] = []
            for kind in state.kinds:
                if kind == "null":
                    stack.append(NULL)
                elif kind == "exc_info":
                    stack.append(_Handled(values[at + 1]))
                    at += 2
                else:
                    stack.append(values[at])
                    at += 1
            made = None
            if state.cont == "initialise":
                made = values[at]
                at += 1
            parts.append((slots, stack, made))
        return parts, values[at:]

    def _handled_outside(self, parts: list[Any], depth: int, handled: Any) -> Any:
        """The exception an outer frame is handling while frame `depth` runs."""
        for _, stack, _ in reversed(parts[:depth]):
            for item in reversed(stack):
                if type(item) is _Handled:
                    return item.exc
        return None


class _Handled:
    __slots__ = ("exc",)

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc


def _filled(pushes: tuple[str, ...], rest: list[Any]) -> list[Any]:
    values = iter(rest)
    return [NULL if kind == "null" else next(values) for kind in pushes]


def _taken(cont: str, made: Any, value: Any) -> list[Any]:
    if cont == "push":
        return [value]
    if cont == "initialise":
        return [made]
    return [] if cont == "discard" else [None]


def own_frames_dropped(tb: Any) -> Any:
    """A traceback without Stator's frames at its top."""
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_OWN):
        tb = tb.tb_next
    return tb


_OWN = __file__.rsplit("/", 2)[0]


def handling(exc: BaseException | None, run: Any, *args: Any) -> Any:
    """Run with `exc` as the exception being handled."""
    if exc is None:
        return run(*args)
    traceback, context = exc.__traceback__, exc.__context__
    try:
        raise exc
    except BaseException:
        exc.__traceback__, exc.__context__ = traceback, context
        return run(*args)
