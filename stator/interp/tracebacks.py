"""The program's frames in tracebacks.   an interpreted frame  ->  a Place; a traceback, a Place  ->  a longer one"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from stator import _hook
from stator.interp.frame import Frame


@dataclass(frozen=True, eq=False)
class Place:
    """Where a frame stands, as a traceback shows it."""

    code: types.CodeType
    namespace: dict[str, Any]
    lasti: int
    line: int


@dataclass(frozen=True, eq=False)
class Unwound:
    """An exception of the user's was in this frame: its traceback grows when the effects are written."""

    exc: BaseException
    place: Place


def place_of(frame: Frame) -> Place:
    instruction = frame.instruction
    return Place(frame.code, frame.scope.namespace, instruction.offset, instruction.line or frame.code.co_firstlineno)


def places_from(frame: Frame | None) -> tuple[Place, ...]:
    """A frame and its callers, innermost first."""
    places = []
    while frame is not None:
        if frame.func is not None:
            places.append(place_of(frame))
        frame = frame.caller()
    return tuple(places)


def with_place(traceback: types.TracebackType | None, place: Place) -> types.TracebackType:
    """The traceback, seen from a frame further out."""
    frame = _hook.new_frame(place.code, place.namespace, {})
    return types.TracebackType(traceback, frame, place.lasti, place.line)


def add_place(exc: BaseException, place: Place) -> None:
    """What unwinding does to an exception, done by the residual program."""
    exc.__traceback__ = with_place(exc.__traceback__, place)
