"""Generators that one segment suspends and the next goes on with.

    park(generator, ...)     emit: this native generator stands where that frame stood, and holds these values
    Generators.get(id)       interp: the interpreted body of a generator; of a parked one, made again from its values
    finish(generator)        the residual of a segment that ran a parked generator to its end

A parked generator stands in the prologue of its code, where it never comes back to once somebody advances it: so
whether its values are still those it was parked with is one comparison.
"""

from __future__ import annotations

import types
import weakref
from dataclasses import dataclass
from typing import Any

from stator.code.decode import decode
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.interp.frame import NULL, UNBOUND, Frame
from stator.interp.generators import Suspended
from stator.interp.machine import program_of
from stator.source import CallOf, Index, Pinned


class Finish:
    """Sent to a parked generator, it ends it without running any of its body."""


FINISH = Finish()


@dataclass(frozen=True)
class Parked:
    """What a parked generator stands for."""

    code: types.CodeType
    namespace: dict[str, Any]
    index: int
    slots: tuple[int, ...]
    kinds: tuple[str, ...]
    values: tuple[Any, ...]
    started: bool
    lasti: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (id(self.code), id(self.namespace), self.index, self.slots, self.kinds, self.started)


_parked: weakref.WeakKeyDictionary[Any, Parked] = weakref.WeakKeyDictionary()


def park(generator: Any, code: types.CodeType, namespace: dict[str, Any], index: int, slots: tuple[int, ...],
         kinds: tuple[str, ...], values: tuple[Any, ...], started: bool) -> None:
    for other in [other for other in list(_parked) if state_of(other) is None]:
        _parked.pop(other, None)  # advanced by somebody: its values are not kept alive
    _parked[generator] = Parked(code, namespace, index, slots, kinds, values, started, generator.gi_frame.f_lasti)


def state_of(generator: Any) -> Parked | None:
    """What the generator was parked with, if nobody has advanced it since."""
    state = _parked.get(generator) if type(generator) is types.GeneratorType else None
    frame = None if state is None else generator.gi_frame
    return state if frame is not None and not generator.gi_running and frame.f_lasti == state.lasti else None


def parked_key(generator: Any) -> tuple[Any, ...] | None:
    """A pure reader for guards: where a parked generator stands."""
    state = state_of(generator)
    return None if state is None else state.key


def parked_values(generator: Any) -> tuple[Any, ...]:
    """A pure reader for guards and residuals: the values of a parked generator's frame."""
    state = state_of(generator)
    return () if state is None else state.values


def finish(generator: Any) -> None:
    """The body ran to its end, in a graph; the generator itself is over now."""
    state = _parked.pop(generator)
    if not state.started:
        return generator.close()
    try:
        generator.send(FINISH)
    except StopIteration:
        pass


class Generators(dict[int, Any]):
    """The interpreted bodies of generators, by id of the object; a parked one is adopted when it is first asked for."""

    def __init__(self, vm: Any) -> None:
        super().__init__()
        self.vm = vm
        self.adopts = True

    def get(self, key: int, default: Any = None) -> Any:
        found = dict.get(self, key)
        if found is None and self.adopts and key in self.vm.heap.by_standin:
            found = adopt(self.vm, self.vm.heap.by_standin[key])
        return default if found is None else found

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __getitem__(self, key: int) -> Any:
        return self.get(key)


def adopt(vm: Any, tracker: Any) -> Suspended | None:
    """The frame of a parked generator, its values unread boxes."""
    generator = tracker.original
    if type(generator) is not types.GeneratorType:
        return None
    state = state_of(generator)
    if state is None or "exc_info" in state.kinds:
        return None
    vm.heap.guard(CallOf(Pinned(parked_key), (tracker.source,)), Kind.FRESH_CALL, state.key)
    place = CallOf(Pinned(parked_values), (tracker.source,))
    boxes = iter([Box(vm.heap, value, Index, place, number) for number, value in enumerate(state.values)])
    unit = decode(state.code)
    slots: list[Any] = [UNBOUND] * unit.nlocalsplus
    for slot in state.slots:
        slots[slot] = next(boxes)
        if slot in unit.cell_slots or slot in unit.free_slots:
            slots[slot] = slots[slot].force()
    closure = tuple(types.CellType() for _ in state.code.co_freevars)
    function = types.FunctionType(state.code, state.namespace, state.code.co_name, None, closure or None)
    frame = Frame(unit, program_of(unit), function, slots, vm.heap.scope(state.namespace))
    vm.fresh[id(function)] = function
    frame.ip = state.index
    frame.stack = [NULL if kind == "null" else next(boxes).force() for kind in state.kinds]
    body = frame.generator = Suspended(frame)
    body.started, body.adopted = state.started, True
    body.handle = weakref.ref(generator)
    vm.generators[id(generator)] = body
    return body
