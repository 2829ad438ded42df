"""Resume points: where a call goes on after a graph break.

A point holds the suspended frames' states (data) and knows how to run the rest of the call natively, from the
innermost frame outwards, for when it is not compiled.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from stator import events
from stator.code.decode import decode
from stator.emit.resume import native_step
from stator.interp.frame import NULL, UNBOUND, SavedExc, add_entries, stack_of
from stator.interp.suspend import FrameState, names_of, remake

NATIVE_CODES: set[types.CodeType] = set()  # made here to run natively: nobody captures them


@dataclass(frozen=True)
class Left:
    """The callers of a frame that ran natively, their values, and an exception to raise there."""

    states: list[FrameState]
    values: tuple[Any, ...]
    handled: BaseException | None  # what the innermost of them is handling
    error: BaseException | None
    value: Any = None  # of the outermost frame, where there are no callers


@dataclass
class ResumePoint:
    """Frames to go on with; `pushes` are the results on the innermost stack, or an exception is raised there."""

    states: list[FrameState]
    pushes: tuple[str, ...]
    handled: bool
    raising: bool
    name: str
    place: tuple[str, int] = ("", 0)  # the user's line
    names: list[str] = field(default_factory=list)
    compiled: Any = None
    _native: dict[Any, types.CodeType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        more = sum(kind == "value" for kind in self.pushes) + self.handled + self.raising
        self.names = names_of(self.states, more)

    def run_innermost(self, taken: list[Any], invoke: object) -> Left:
        """Run the innermost frame to its end (a generator's: to its next yield) with `taken`, which is emptied."""
        frames = self._split(tuple(taken))[0]
        outer = tuple(taken[:sum(state.value_count() for state in self.states[:-2])])
        taken.clear()
        value, error = self._leave(frames, None, invoke)
        try:
            return self._left(frames, outer, value, error)
        finally:
            del frames, outer, value, error  # see run_native

    def ways_out(self) -> Iterator[Left]:
        """Results that `run_innermost` may have: each value the number of the one it was before, None: new."""
        values = tuple(range(sum(state.value_count() for state in self.states) + self.handled))
        for yielded, raised in ((False, None), (True, None), (False, Exception())):
            frames, _ = self._split(values)
            frame = frames.pop()
            if frames and (frame.generator is not None or not yielded):
                passed = native_step.pass_on(frame.cont, frames[-1], None, yielded, raised)
                yield self._left(frames, values, None, passed)

    def _left(self, frames: list[native_step.NativeFrame], values: tuple[Any, ...], value: object,
              error: BaseException | None) -> Left:
        if not frames:
            return Left([], (), None, error, value)
        frame, count = frames[-1], sum(state.value_count() for state in self.states[:-2])
        left = [*values[:count], *frame.slots]
        state = replace(self.states[-2].moved(frame.ip, len(frame.stack)), kinds=add_entries(frame.stack, left))
        handled = next((item.current for item in reversed(frame.stack) if type(item) is SavedExc), None)
        return Left([*self.states[:-2], state], (*left, *frame.tail), handled, error)

    def run_native(self, taken: list[Any]) -> Any:
        """Run the rest of the call as CPython would.  `taken` is emptied, and no frame of ours holds the exception."""
        values = tuple(taken)
        taken.clear()
        frames, rest = self._split(values, native_step.NewOwners(self.states, values))
        given = iter(rest)
        for kind in self.pushes:
            frames[-1].stack.append(NULL if kind == "null" else next(given))
        error = rest[-1] if self.raising else None
        del values, rest, given
        value = None
        try:
            while frames:
                value, error = self._leave(frames, error)
            if error is not None:
                raise error
            return value
        finally:
            del value, error

    def _leave(self, frames: list[native_step.NativeFrame], error: BaseException | None,
               invoke: object = None) -> tuple[Any, BaseException | None]:
        """Run the innermost of `frames`, drop it, and give its caller a value, or the exception to raise there."""
        frame = frames.pop()
        outside = _handled_outside(frames, frame)
        pending = [] if error is None else [error]
        made, value, yielded = None, None, False
        try:
            error = None
            made = native_step.handling(outside, self._call, frame, pending,
                                        None if frame.generator is not None else invoke)
            if frame.generator is not None:
                value, yielded = native_step.handling(outside, native_step.advance_generator, frame, made, invoke)
            else:
                value = made
        except BaseException as raised:
            error = raised
            raised.__traceback__ = native_step.own_frames_dropped(raised.__traceback__)
        try:
            if not frames:
                return value, error
            return None, native_step.pass_on(frame.cont, frames[-1], value, yielded, error)
        finally:
            del frame, outside, made, value, error  # see run_native

    def _call(self, frame: native_step.NativeFrame, pending: list[BaseException], invoke: Any = None) -> Any:
        """Run a frame, or make a generator that runs it; `pending`, which is emptied, has an exception to raise."""
        state = frame.state
        unit = decode(state.code)
        kinds = tuple(native_step.SlotKind(kind) for kind in add_entries(frame.stack, []))
        raising = bool(pending)
        # A dead slot may hold no value.
        slots = tuple(slot for slot, value in zip(state.slots, frame.slots, strict=True) if value is not UNBOUND)
        key = (state.code, id(state.namespace), frame.ip, slots, kinds, raising, state.kwnames)
        closure = tuple(frame.slots[state.slots.index(slot)] for slot in unit.free_slots) or None
        code = self._native.get(key)
        if code is None:
            index = max(frame.ip - 1, 0) if raising else start_of(state, frame.ip)
            code = self._native[key] = native_step.resume_code(state.code, index, slots, kinds, raising=raising)
            events.emit(events.ResumeCode(self.name, code))
            NATIVE_CODES.add(code)
        function = types.FunctionType(code, state.namespace, state.code.co_name, None, closure)
        values = [*frame.given_up(), *pending]
        pending.clear()
        return function(values) if invoke is None else invoke(function, values)

    def _split(self, values: tuple[Any, ...], owners: Any = None) -> tuple[
            list[native_step.NativeFrame], tuple[Any, ...]]:
        """The frames with their values, and what follows them; with `owners`, no generator of theirs is in `values`."""
        all_given = iter(values)
        frames: list[native_step.NativeFrame] = []
        for state in self.states:
            mine = itertools.islice(all_given, state.value_count())
            given = iter(mine if owners is None else owners.taken(state, mine))
            slots = [next(given) for _ in state.slots]
            stack = stack_of(state.kinds, given.__next__)
            tail = [next(given) for _ in range(state.tail_count())]
            frame = native_step.NativeFrame(state, slots, stack, tail)
            held = iter(tail[2:] if state.generator else tail)
            frame.cont = remake(state.cont, lambda held=held: next(held))
            frames.append(frame)
        return frames, tuple(all_given)


def _handled_outside(frames: list[native_step.NativeFrame], frame: native_step.NativeFrame) -> Any:
    """The exception that the callers of `frame` are handling while it runs."""
    for called, caller in zip([frame, *reversed(frames)], reversed(frames), strict=False):
        if called.generator is not None and called.tail[1] is not None:
            return called.tail[1]
        for item in reversed(caller.stack):
            if type(item) is SavedExc:
                return item.current
    return None


def start_of(state: FrameState, index: int) -> int:
    """Where native code takes over: before the names of a call's keywords, which CPython keeps out of the stack."""
    instructions = decode(state.code).instructions
    while state.kwnames and index <= state.index and instructions[index].opname != "KW_NAMES":
        index -= 1
    return index
