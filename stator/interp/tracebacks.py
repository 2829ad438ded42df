"""The program's frames in tracebacks.   an interpreted frame  ->  a Place; a traceback, a Place  ->  a longer one"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import numpy
from torch._subclasses.fake_tensor import FakeTensor

from stator import _hook
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box
from stator.interp.frame import Frame

_HOLDERS = (Box, FakeTensor, numpy.ndarray, list, tuple, dict, types.CellType)  # weak references may see others die


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
    held: dict[str, Any]


def locals_of(frame: Frame, outside: dict[int, Any]) -> dict[str, Any]:
    """Locals of a frame that an exception leaves: memory that lives as long as the traceback, and outside objects."""
    found: dict[str, Any] = {}
    for name, value in zip(frame.unit.local_names, frame.locals, strict=False):
        if type(value) in _HOLDERS or id(value) in outside:
            found[name] = value
        elif own := [part for part in (instance_dict(value) or {}).values() if type(part) is FakeTensor]:
            found[name] = own
    return found


def place_of(frame: Frame) -> Place:
    instruction = frame.instruction
    return Place(frame.code, frame.scope.namespace, instruction.offset, instruction.line or frame.code.co_firstlineno)


def last_offset(frame: Frame) -> int:
    """f_lasti: RERAISE with an argument goes back to the instruction that its handler was entered from."""
    instruction = frame.instruction
    if instruction.opname == "RERAISE" and instruction.arg and type(frame.stack[-instruction.arg]) is int:
        return int(frame.stack[-instruction.arg]) * 2
    return int(instruction.offset)  # or a break lies in between, and the number is unread


def places_from(frame: Frame | None) -> tuple[Place, ...]:
    """A frame and its callers, innermost first."""
    places = []
    while frame is not None:
        if frame.func is not None:
            places.append(place_of(frame))
        frame = frame.caller()
    return tuple(places)


def frame_at(place: Place, held: dict[str, Any] | None = None) -> types.FrameType:
    """A frame object that stands there and holds these locals."""
    frame: types.FrameType = _hook.new_frame(place.code, place.namespace, held or {})
    _hook.set_lasti(frame, place.lasti)
    return frame


class FrameObjects:
    """Frame objects of tracebacks, each for one interpreted frame that is not over; they show where it stands."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Frame, types.FrameType]] = {}
        self.held: dict[int, dict[str, Any]] = {}  # of a frame object, by id -> locals of the frame that was left

    def __bool__(self) -> bool:
        return bool(self._made)

    def of(self, frame: Frame) -> types.FrameType:
        if frame.generator is not None:  # suspended, it is over when nobody holds it any more
            return frame_at(place_of(frame))
        known = self._made.get(id(frame))
        if known is None:
            known = self._made[id(frame)] = frame, frame_at(place_of(frame))
        return known[1]

    def left(self, frame: Frame, held: dict[str, Any] | None = None) -> None:
        """The interpreted frame is over: its object shows the last instruction from now on, and holds locals."""
        known = self._made.pop(id(frame), None)
        if known is not None:
            self.held[id(known[1])] = held or {}
            _hook.set_lasti(known[1], last_offset(frame))

    def update(self, shown: types.FrameType) -> None:
        for frame, known in self._made.values():
            if known is shown:
                _hook.set_lasti(shown, last_offset(frame))


def with_place(traceback: types.TracebackType | None, place: Place,
               shown: types.FrameType | None = None) -> types.TracebackType:
    """The traceback, seen from a frame further out; `shown`: its object, where it has one."""
    frame = frame_at(place) if shown is None else shown
    return types.TracebackType(traceback, frame, place.lasti, place.line)


def add_place(exc: BaseException, place: Place, held: dict[str, Any] | None = None) -> None:
    """What unwinding does to an exception, done by the residual program."""
    exc.__traceback__ = with_place(exc.__traceback__, place, frame_at(place, held))


def with_locals(traceback: types.TracebackType | None, held: dict[int, dict[str, Any]]) -> types.TracebackType | None:
    """A copy of a traceback in which frames hold locals; `held`: by number, the outermost first."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    for number in reversed(range(len(entries))):
        each = entries[number]
        frame = each.tb_frame
        if number in held:
            frame = frame_at(Place(frame.f_code, frame.f_globals, frame.f_lasti, each.tb_lineno), held[number])
        traceback = types.TracebackType(traceback, frame, each.tb_lasti, each.tb_lineno)
    return traceback
