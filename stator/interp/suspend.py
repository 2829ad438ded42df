"""Stop a trace between two instructions, and go on from there.   frames  ->  FrameStates and values  ->  frames"""

from __future__ import annotations

import keyword
import types
from dataclasses import dataclass, replace
from typing import Any

from stator import _hook
from stator.code.decode import decode
from stator.code.flow import bound_locals, live_in_call, live_locals
from stator.code.stack_effects import depths, pops
from stator.heap.tracker import NO_KEY, Box, unbox
from stator.host.value_kinds import is_a
from stator.interp.frame import NULL, UNBOUND, Continuation, Frame, add_entries, outward
from stator.interp.generators import generators
from stator.interp.generators.suspended_frames import ASYNC_GENERATOR
from stator.interp.machine import Thunk
from stator.interp.services import VM
from stator.source import Local

_LOOKS_AT_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir", "globals", "_getframe", "super"})
_CALL_REFERENCES = 1  # the argument of _hook.refcount
_VALUES = {"value": 1, "null": 0, "exc_info": 2}

ValuePlace = tuple[str, int]  # which value of a frame: ("local", slot), ("stack", depth), ("body", 0), ...
Waiting = tuple[Any, ...]  # what a caller does with a value: () pushes it; else (class, plain fields, what is behind)


@dataclass(frozen=True)
class FrameState:
    """Where one suspended frame stands: plain data, equal for every stop at the same place."""

    code: types.CodeType
    namespace: Any  # the globals dict, by identity
    index: int  # the next instruction
    slots: tuple[int, ...]  # live locals, then dead ones
    kinds: tuple[str, ...]  # of the stack, bottom up: "value", "null", "exc_info"
    cont: Waiting  # what its caller does with its value
    kwnames: tuple[str, ...]
    owned: frozenset[ValuePlace] = frozenset()  # generators that nobody but the suspended frames holds
    generator: bool = False  # of a running generator: the object follows the stack, then what its caller handles
    dead: int = 0  # how many of the slots are never read again; they keep alive what they hold, and may be unbound

    def key(self) -> tuple[Any, ...]:
        return (id(self.code), id(self.namespace), self.index, self.slots, self.kinds, self.cont, self.kwnames,
                self.owned, self.generator, self.dead)

    def place(self, waits: bool) -> tuple[str, int]:
        """The file, and the line of the next instruction, or of the call that it waits for."""
        before = decode(self.code).instructions[max(self.index - waits, 0)::-1]
        return self.code.co_filename, next((each.line for each in before if each.line), self.code.co_firstlineno)

    def maker(self, depth: int) -> tuple[int, str]:
        """The offset of the instruction that has made a value of the stack; and GET_ITER, ... that has wrapped it."""
        unit, wrapped = decode(self.code), ""
        for each, before in zip(unit.instructions[self.index - 1::-1], depths(unit)[self.index - 1::-1], strict=True):
            if before is None or before - pops(each.opname, each.arg or 0) > depth:
                continue
            if depth < before and each.opname in ("GET_ITER", "BEFORE_WITH"):
                wrapped = each.opname
            elif depth >= before or each.opname != "FOR_ITER":
                return each.offset, wrapped
        return -1, wrapped

    def places(self) -> list[ValuePlace]:
        stack = [("stack" if kind == "value" else "saved", depth) for depth, kind in enumerate(self.kinds)
                 for _ in range(_VALUES[kind])]
        body = [("body", 0), ("handled", 0)] if self.generator else []
        held = [("held", number) for number in range(held_count(self.cont))]
        return [*(("local", slot) for slot in self.slots), *stack, *body, *held]

    def moved(self, index: int, depth: int) -> FrameState:
        """The same frame at another instruction, with `depth` places of its stack left."""
        owned = frozenset(place for place in self.owned if place[0] != "stack" or place[1] < depth)
        return replace(self, index=index, kinds=self.kinds[:depth], kwnames=(), owned=owned)

    def value_count(self) -> int:
        return len(self.slots) + sum(_VALUES[kind] for kind in self.kinds) + self.tail_count()

    def tail_count(self) -> int:
        return 2 * self.generator + held_count(self.cont)


class KeptAlive:
    """The value of a local that nothing reads again, among the values of suspended frames."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def waiting_of(cont: Continuation | None) -> Waiting | None:
    """A continuation without the values it holds; None where it cannot be made again later."""
    if cont is None:
        return ()
    cls = type(cont)
    if not cls.resumes:
        return None
    behind = waiting_of(cont.cont)
    return None if behind is None else (cls, tuple(getattr(cont, name) for name in cls.plain), behind)


def held_values(cont: Continuation | None) -> list[Any]:
    if cont is None:
        return []
    return [*(getattr(cont, name) for name in cont.held), *held_values(cont.cont)]


def held_count(waiting: Waiting) -> int:
    return len(waiting[0].held) + held_count(waiting[2]) if waiting else 0


def remake(waiting: Waiting, take: Any) -> Any:
    """The continuation again, its values from `take`."""
    if not waiting:
        return None
    cls, plain, behind = waiting
    cont = cls.__new__(cls)
    for name, value in zip(cls.plain, plain, strict=True):
        setattr(cont, name, value)
    for name in cls.held:
        setattr(cont, name, take())
    if "cont" in cls.fields:
        cont.cont = remake(behind, take)
    return cont


def chain(vm: VM, innermost: Frame | None) -> list[Frame]:
    """The frames that the outermost loop has on its stack, root first."""
    found: list[Frame] = []
    for frame in outward(innermost):
        found.append(frame)
        if frame.is_base and frame.outer is not None:
            found.clear()  # a nested loop: only what is outside it can be resumed
    return found[::-1]


def plan_stop(vm: VM, innermost: Frame | None, leave: str = "", outermost: bool = False) -> int | None:
    """The step to stop at: the innermost instruction all of whose callers can be resumed; None: there is none.

    Do not stop in frames of the file `leave`, whose callees look at their caller; `outermost`: only in the first.
    """
    if not vm.steps:
        return None
    frames = chain(vm, innermost)
    if outermost:
        del frames[1:]
    while leave and len(frames) > 1 and frames[-1].code.co_filename == leave:
        frames.pop()
    while len(frames) > 1 and type(frames[-1]) is not Thunk and in_prologue(frames[-1]):
        frames.pop()
    if not frames or any(type(frame) is Thunk for frame in frames) or in_prologue(frames[-1]):
        return None
    stuck = (frame.step for frame, callee in zip(frames, frames[1:], strict=False) if not can_resume(callee))
    return next(stuck, frames[-1].step)


def in_prologue(frame: Frame) -> bool:
    """Whether the frame still makes its cells: it has no state yet that could be entered again."""
    return frame.unit.instructions[max(frame.ip - 1, 0)].opname in ("COPY_FREE_VARS", "MAKE_CELL")


def can_resume(frame: Frame) -> bool:
    """Whether a called frame can be left and entered again; class bodies and async generators cannot."""
    body = frame.generator
    if body is not None and (frame.code.co_flags & ASYNC_GENERATOR or body.alive is None):
        return False
    return frame.names is None and waiting_of(frame.cont) is not None


def suspend(vm: VM, lifetimes: bool = False) -> tuple[list[FrameState], list[Any]]:
    """State of every frame, and a flat list of its values; `lifetimes`: keep all variables, as deaths are observed."""
    states: list[FrameState] = []
    values: list[Any] = []
    frames = chain(vm, vm.frame)
    starts: list[int] = []
    for frame in frames:
        calls = frame is not vm.frame
        live = live_slots(frame, frame.ip, (frame.locals,), calls, every=lifetimes)
        dead = dead_slots(frame, live, calls)
        starts.append(len(values))
        values += [frame.locals[slot] for slot in live]
        # Its bases list a class that was made inside, as long as it lives.
        values += [value if is_a(value, type) and id(value) in vm.fresh else KeptAlive(value)
                   for value in map(frame.locals.__getitem__, dead)]
        kinds = add_entries(frame.stack, values)
        cont = None if frame is frames[0] else frame.cont
        waiting = waiting_of(cont)
        assert waiting is not None
        if frame.generator is not None:
            values += [frame.generator.alive, frame.generator.saved.value]
        values += held_values(cont)
        states.append(FrameState(frame.code, frame.scope.namespace, frame.ip, (*live, *dead), kinds, waiting,
                                 frame.kwnames, frozenset(), frame.generator is not None, len(dead)))
    owned = _owned_generators(vm, values)
    for number, (state, start) in enumerate(zip(states, starts, strict=True)):
        mine = frozenset(place for at, place in enumerate(state.places(), start) if at in owned)
        states[number] = replace(state, owned=mine)
    return states, values


def _owned_generators(vm: VM, values: list[Any]) -> list[int]:
    """Places of waiting or running generators to which nothing refers but the frames that are suspended."""
    places: dict[int, list[int]] = {}
    for place, value in enumerate(values):
        body = dict.get(vm.generators, id(value)) if type(value) in generators.ADOPTED else None
        if body is not None and not body.done:
            places.setdefault(id(value), []).append(place)
    value = None
    found: list[int] = []
    for where in places.values():
        # Each place is in `values` and in a frame; `alive` takes the frame's part for the generator that runs.
        if _hook.refcount(values[where[0]]) == 2 * len(where) + _CALL_REFERENCES:
            found += where
    return found


def live_slots(frame: Frame, index: int, held: tuple[list[Any], ...], calls: bool = False,
               every: bool = False) -> tuple[int, ...]:
    """Live slots at an instruction (`every`: all) that are bound in one of `held`; generators always are."""
    slots: Any = range(frame.unit.nlocalsplus)
    if not every and not _LOOKS_AT_LOCALS & set(frame.code.co_names):
        live = read_later(frame, index, calls)
        cells = set(frame.unit.free_slots)  # a resume function is made with its whole closure
        slots = [slot for slot in slots if slot in live or slot in cells
                 or any(type(values[slot]) in generators.RESUMABLE for values in held)]
    return tuple(slot for slot in slots if any(values[slot] is not UNBOUND for values in held))


def dead_slots(frame: Frame, live: tuple[int, ...], calls: bool) -> tuple[int, ...]:
    """Slots that nothing reads again, by the instruction alone; not one read later and unbound now: the read raises."""
    if _LOOKS_AT_LOCALS & set(frame.code.co_names):
        return ()
    # A tuple lets go of its last value first, a frame of its first local.
    return tuple(sorted(bound_locals(frame.unit, frame.ip).difference(live, read_later(frame, frame.ip, calls)),
                        reverse=True))


def read_later(frame: Frame, index: int, calls: bool) -> frozenset[int]:
    return live_in_call(frame.unit, index) if calls else live_locals(frame.unit, index)


def names_of(states: list[FrameState], more: int) -> list[str]:
    found: list[str] = []
    used = {"taken", "run_native"}  # by the function around them (see capture.miss.make_point_entry)
    numbers: dict[str, int] = {}

    def add(name: str) -> None:
        name = wanted = name if name.isidentifier() and not keyword.iskeyword(name) else "v"
        while name in used:
            numbers[wanted] = numbers.get(wanted, 0) + 1
            name = f"{wanted}_{numbers[wanted]}"
        used.add(name)
        found.append(name)
    for state in states:
        names = decode(state.code).local_names
        for kind, number in state.places():
            add(names[number] if kind == "local" else state.code.co_name if kind == "body"
                else "handled" if kind == "saved" else kind)
    for _ in range(more):
        add("result")
    return found


def restore(vm: VM, states: list[FrameState], names: list[str], bound: tuple[Any, ...],
            pushes: tuple[str, ...], handled: bool, raising: bool) -> tuple[Frame, Frame, BaseException | None]:
    """Rebuild the frames on boxes of `bound`.  (root, innermost, exception to raise there or None)"""
    numbers = iter(range(len(bound)))

    def box() -> Any:
        number = next(numbers)
        return boxed_argument(vm, bound[number], Local(names[number], number))

    parent: Frame | None = None
    root: Frame | None = None
    for state in states:
        places = iter(state.places())

        def take(state: FrameState = state, places: Any = places) -> Any:
            value = box()
            return generators.owned_generator(vm, value.force()) if next(places) in state.owned else value

        frame = generators.remade_frame(
            vm, state.code, state.namespace, state.index, state.slots, state.kinds, take, state.dead)
        frame.kwnames, frame.parent = state.kwnames, parent
        if state.generator:
            _enter_body(vm, frame, unbox(take()), unbox(take()))
        else:
            vm.exc_state.value = generators.handled_in(frame) or vm.exc_state.value
        frame.cont = remake(state.cont, lambda take=take: unbox(take()))
        root, parent = root or frame, frame
    assert parent is not None and root is not None
    # A result that is dropped or stored is not looked at here: it gets no guard before something reads it.
    unread = parent.unit.instructions[parent.ip].opname in ("POP_TOP", "STORE_FAST") and len(pushes) == 1
    for kind in pushes:
        parent.stack.append(NULL if kind == "null" else box() if unread else box().force())
    if handled:
        vm.exc_state.value = box().force()
    thrown = box().force() if raising else None
    return root, parent, thrown


def _enter_body(vm: VM, frame: Frame, generator: object, handled: BaseException | None) -> None:
    """The frame is that of a running generator, which its caller's exception state waits for."""
    body = dict.get(vm.generators, id(generator)) or generators.adopted_body(vm, vm.heap.by_standin[id(generator)])
    generators.fill_body(body, frame)
    body.started = body.running = body.entered = True
    body.alive = generator
    vm.exc_state.value = handled
    body.saved = body.exc_state.previous = vm.exc_state
    vm.exc_state = body.exc_state


def boxed_argument(vm: VM, raw: object, source: Local) -> Box:
    """An argument of the entry, unread: its place is the source itself."""
    vm.identity.handed[id(raw)] = raw
    return Box(vm.heap, raw, lambda base: base, source, NO_KEY)
