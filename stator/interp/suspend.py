"""Stop a trace between two instructions, and go on from there.

    chain(vm)                 the frames of the outermost loop, root first
    plan_stop(vm)             the step at which a repeated trace can stop so that every frame can be resumed
    suspend(vm)               FrameStates: code, place, live locals, stack, what the caller does with the result
    restore(vm, point, ...)   the same frames again, their values unread boxes of a new trace
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from stator.code.decode import decode
from stator.code.liveness import live_locals
from stator.heap.box import NO_KEY, Box
from stator.interp.assignment import DISCARD, GiveNone
from stator.interp.calls import Initialise
from stator.interp.frame import NULL, UNBOUND, Frame, SavedExc
from stator.interp.machine import Thunk, program_of
from stator.source import Local

_LOOKS_AT_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir", "globals", "_getframe", "super"})


@dataclass(frozen=True)
class FrameState:
    """Where one suspended frame stands: plain data, equal for every stop at the same place."""

    code: types.CodeType
    namespace: Any  # the globals dict, by identity
    index: int  # the next instruction
    slots: tuple[int, ...]  # live locals
    kinds: tuple[str, ...]  # of the stack, bottom up: "value", "null", "exc_info"
    cont: str  # what its caller does with its value: "push", "discard", "none", "initialise"
    kwnames: tuple[str, ...]

    def key(self) -> tuple[Any, ...]:
        return (id(self.code), id(self.namespace), self.index, self.slots, self.kinds, self.cont, self.kwnames)

    def value_count(self) -> int:
        stack = sum({"value": 1, "null": 0, "exc_info": 2}[kind] for kind in self.kinds)
        return len(self.slots) + stack + (self.cont == "initialise")


def chain(vm: Any, innermost: Frame | None) -> list[Frame]:
    """The frames that the outermost loop has on its stack, root first."""
    found: list[Frame] = []
    frame = innermost
    while frame is not None:
        found.append(frame)
        if frame.is_base and frame.outer is not None:
            found.clear()  # a nested loop: only what is outside it can be resumed
        frame = frame.caller()
    return found[::-1]


def cont_kind(frame: Frame) -> str | None:
    """How the caller takes this frame's value; None where that cannot be done again later."""
    cont = frame.cont
    if cont is None:
        return "push"
    if cont is DISCARD:
        return "discard"
    if type(cont) is Initialise and cont.cont is None:
        return "initialise"
    if type(cont) is GiveNone and cont.cont is None:
        return "none"
    return None


def plan_stop(vm: Any, innermost: Frame | None) -> int | None:
    """The step to stop at: the innermost instruction all of whose callers can be resumed."""
    frames = chain(vm, innermost)
    if not frames or any(type(frame) is Thunk for frame in frames):
        return None
    for frame, callee in zip(frames, frames[1:], strict=False):
        if callee.generator is not None or callee.names is not None or cont_kind(callee) is None:
            return frame.step
    return frames[-1].step


def suspend(vm: Any) -> tuple[list[FrameState], list[Any]]:
    """The state of every frame, and the flat list of values it holds."""
    states: list[FrameState] = []
    values: list[Any] = []
    frames = chain(vm, vm.frame)
    for frame in frames:
        index = frame.ip
        slots = _live_slots(frame, index)
        values += [frame.locals[slot] for slot in slots]
        kinds: list[str] = []
        for item in frame.stack:
            if item is NULL:
                kinds.append("null")
            elif type(item) is SavedExc:
                kinds.append("exc_info")
                values += [item.previous, item.current]
            else:
                kinds.append("value")
                values.append(item)
        cont = "push" if frame is frames[0] else cont_kind(frame)
        assert cont is not None
        if cont == "initialise":
            values.append(frame.cont.obj)
        states.append(FrameState(frame.code, frame.scope.namespace, index, slots, tuple(kinds), cont, frame.kwnames))
    return states, values


def _live_slots(frame: Frame, index: int) -> tuple[int, ...]:
    slots: Any = range(frame.unit.nlocalsplus)
    if not _LOOKS_AT_LOCALS & set(frame.code.co_names):
        live = live_locals(frame.unit, index)
        cells = set(frame.unit.free_slots)  # a resume function is made with its whole closure
        slots = [slot for slot in slots if slot in live or slot in cells]
    return tuple(slot for slot in slots if frame.locals[slot] is not UNBOUND)


def names_of(states: list[FrameState], more: int) -> list[str]:
    """A readable name for every value of a point, in order."""
    found: list[str] = []
    used: dict[str, int] = {}

    def add(name: str) -> None:
        name = name if name.isidentifier() else "v"
        used[name] = used.get(name, -1) + 1
        found.append(name if not used[name] else f"{name}_{used[name]}")
    for state in states:
        names = decode(state.code).local_names
        for slot in state.slots:
            add(names[slot])
        for kind in state.kinds:
            for _ in range({"value": 1, "null": 0, "exc_info": 2}[kind]):
                add("stack" if kind == "value" else "handled")
        if state.cont == "initialise":
            add("made")
    for _ in range(more):
        add("result")
    return found


def restore(vm: Any, states: list[FrameState], names: list[str], bound: tuple[Any, ...],
            pushes: tuple[str, ...], handled: bool, raising: bool) -> tuple[Frame, Frame, BaseException | None]:
    """Rebuild the frames on boxes of `bound`.  (root, innermost, exception to raise there or None)"""
    numbers = iter(range(len(bound)))

    def box() -> Any:
        number = next(numbers)
        return boxed_argument(vm, bound[number], Local(names[number], number))

    parent: Frame | None = None
    root: Frame | None = None
    for state in states:
        unit = decode(state.code)
        slots: list[Any] = [UNBOUND] * unit.nlocalsplus
        for slot in state.slots:
            slots[slot] = box()
        _adopt_cells(vm, unit, slots)
        frame = Frame(unit, program_of(unit), _stand_in_function(state), slots, vm.heap.scope(state.namespace))
        vm.fresh[id(frame.func)] = frame.func
        frame.ip, frame.kwnames, frame.parent = state.index, state.kwnames, parent
        for kind in state.kinds:
            if kind == "null":
                frame.stack.append(NULL)
            elif kind == "exc_info":
                previous = box().force()
                frame.stack.append(SavedExc(previous, box().force()))
            else:
                frame.stack.append(box().force())
        frame.cont = _cont(state.cont, box)
        root, parent = root or frame, frame
    assert parent is not None and root is not None
    for kind in pushes:
        parent.stack.append(NULL if kind == "null" else box().force())
    if handled:
        vm.exc_state.value = box().force()
    thrown = box().force() if raising else None
    return root, parent, thrown


def _cont(kind: str, box: Any) -> Any:
    if kind == "initialise":
        return Initialise(box().force(), None)
    return {"push": None, "discard": DISCARD, "none": GiveNone(None)}[kind]


def _adopt_cells(vm: Any, unit: Any, slots: list[Any]) -> None:
    """Cells are passed as cells: the frame works on their shadows."""
    for slot in (*unit.cell_slots, *unit.free_slots):
        if type(slots[slot]) is Box and type(slots[slot].raw) is types.CellType:
            slots[slot] = slots[slot].force()


def _stand_in_function(state: FrameState) -> types.FunctionType:
    """A function object for a resumed frame: only its code, name and globals are looked at."""
    closure = tuple(types.CellType() for _ in state.code.co_freevars)
    return types.FunctionType(state.code, state.namespace, state.code.co_name, None, closure or None)


def boxed_argument(vm: Any, raw: Any, source: Local) -> Box:
    """An argument of the entry, unread: its place is the source itself."""
    return Box(vm.heap, raw, lambda base: base, source, NO_KEY)
