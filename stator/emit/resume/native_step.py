"""Run one suspended frame natively.   a frame with its values, its result  ->  its caller, ready to go on

    resume_code(code, index, slots, kinds)  ->  code of f(values): restore locals and stack, jump to `index`

A continuation of the interpreter acts on a `NativeFrame` as on an interpreted frame.  The prologue of a resume function
empties the list of values, so that the frame alone holds them.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Sequence
from typing import Any

from stator.code.decode import decode
from stator.code.enclosing_handlers import raised_places
from stator.code.encode import encode_parts
from stator.code.instruction import ExceptionEntry, Instruction
from stator.code.opcodes import BY_NAME, TAGGED_PLACES, Operand
from stator.host.own_code import OWN_FOLDER
from stator.interp.frame import NULL, UNBOUND, Raised, SavedExc
from stator.interp.generators.generators import code_of, finish, frame_of, mark_running, new_generator, stand
from stator.interp.suspend import FrameState


class NativeFrame:
    """A suspended frame with its values; to a continuation it is its caller's frame, and the machine as well."""

    def __init__(self, state: FrameState, slots: list[Any], stack: list[Any], tail: list[Any]) -> None:
        self.state, self.slots, self.stack, self.tail = state, slots, stack, tail
        self.ip = state.index
        self.cont: Any = None

    @property
    def generator(self) -> Any:
        """The generator whose body this is, or None."""
        return self.tail[0] if self.state.generator else None

    @property
    def frame(self) -> NativeFrame:
        return self

    def given_up(self) -> list[Any]:
        """Its locals and its stack, for its native code, which alone holds them from then on."""
        found = [value for value in self.slots if value is not UNBOUND]
        found += [item.current if type(item) is SavedExc else item for item in self.stack if item is not NULL]
        self.slots, self.stack = [], []
        return found

    # what a continuation calls on the machine

    def give(self, value: object, cont: Any = None) -> None:
        if cont is None:
            self.stack.append(value)
        else:
            cont.returned(self, self, value)

    def set_context(self, exc: BaseException) -> BaseException:
        return exc

    def is_from_outside(self, value: object) -> bool:
        return False


def pass_on(cont: Any, caller: NativeFrame, value: object, yielded: bool,
            error: BaseException | None) -> BaseException | None:
    """Hand what a frame answered to its caller; the exception to raise there, if any."""
    try:
        if error is not None:
            return None if cont is not None and cont.raised(caller, caller, error) else error
        if yielded:
            cont.yielded(caller, caller, value)
        else:
            caller.give(value, cont)
    except Raised as raised:
        return raised.exc
    return None


def advance_generator(frame: NativeFrame, made: Any, invoke: Any = None) -> tuple[Any, bool]:
    """Run the body of a generator to its next yield, in a generator `made` for it.  (value, yielded?)"""
    generator = frame.generator
    try:
        value = made.send(None) if invoke is None else invoke(made.send, None)
    except StopIteration as stop:
        finish(generator)
        return stop.value, False
    except BaseException:
        finish(generator)
        raise
    found = frame_of(made)
    assert found is not None
    unit, resumed = decode(code_of(generator)), decode(found.code)
    moved = len(resumed.instructions) - len(unit.instructions)
    shift = resumed.nlocalsplus - unit.nlocalsplus
    stand(generator, found.index - moved, tuple(slot - shift for slot in found.slots), found.kinds, found.values, True)
    finish(made)
    return value, True


class NewOwners:
    """Generators of suspended frames alone, moved into new ones: our callers still hold the old ones."""

    def __init__(self, states: list[FrameState], values: tuple[Any, ...]) -> None:
        self._moved: dict[int, tuple[Any, Any]] = {}
        self._running: dict[int, Any] = {}  # the globals of those whose frames are among the suspended
        places = ((state, place) for state in states for place in state.places())
        for (state, place), value in zip(places, values, strict=False):
            if place[0] == "body":
                self._running[id(value)] = state.namespace

    def taken(self, state: FrameState, values: Iterable[Any]) -> list[Any]:
        return [self._move(value) if place in state.owned else value
                for place, value in zip(state.places(), values, strict=True)]

    def _move(self, generator: Any) -> Any:
        known = self._moved.get(id(generator))
        if known is not None:
            return known[1]
        found = frame_of(generator)
        if found is None and id(generator) not in self._running:
            return generator
        namespace = self._running[id(generator)] if found is None else found.namespace
        made = new_generator(code_of(generator), namespace, generator.__name__, generator.__qualname__)
        mark_running(made) if found is None else stand(
            made, found.index, found.slots, found.kinds, found.values, found.started)
        finish(generator)
        self._moved[id(generator)] = generator, made
        return made


def own_frames_dropped(tb: Any) -> Any:
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith((OWN_FOLDER, "<stator")):
        tb = tb.tb_next
    return tb


def handling(exc: BaseException | None, run: Any, *args: Any) -> Any:
    """Run with `exc` as the exception being handled."""
    if exc is None:
        return run(*args)
    traceback, context = exc.__traceback__, exc.__context__
    try:
        raise exc
    except BaseException:
        exc.__traceback__, exc.__context__ = traceback, context
        del exc, traceback, context  # see ResumePoint.run_native
        return run(*args)


_SIGNATURE_FLAGS = 0x04 | 0x08  # varargs, varkeywords
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x200


class SlotKind(enum.Enum):
    """Kind of a place of the value stack."""

    VALUE = "value"
    NULL = "null"
    EXC_INFO = "exc_info"  # saved by PUSH_EXC_INFO; the value given is the exception being handled


def resume_code(code: types.CodeType, index: int, slots: Sequence[int], kinds: Sequence[SlotKind], *,
                raising: bool = False) -> types.CodeType:
    """Code that takes one list and goes on at instruction `index`, or raises the list's last value there."""
    unit = decode(code)
    shift = 0 if code.co_nlocals else 1  # the list needs a local slot of its own
    body = [_shifted(instruction, shift) for instruction in unit.instructions]
    for instruction in body if TAGGED_PLACES and raised_places(unit, index) else ():  # which no prologue can push
        instruction.arg = 0 if instruction.opname == "RERAISE" else instruction.arg
    consts = list(code.co_consts)
    prologue: list[Instruction] = []
    if code.co_freevars:
        prologue.append(Instruction("COPY_FREE_VARS", len(code.co_freevars)))
    if code.co_flags & _GENERATOR_FLAGS:
        prologue += [Instruction("RETURN_GENERATOR", 0), Instruction("POP_TOP", 0)]
    prologue.append(Instruction("RESUME", 0))
    position = len(slots)
    for kind in kinds:
        if kind is SlotKind.NULL:
            prologue.append(Instruction("PUSH_NULL", 0))
            continue
        prologue += _load(position, consts)
        position += 1
        if kind is SlotKind.EXC_INFO:
            prologue += [Instruction("PUSH_EXC_INFO", 0), Instruction("POP_TOP", 0)]
    free = set(unit.free_slots)
    for number, slot in enumerate(slots):
        if slot not in free and slot + shift:
            prologue += [*_load(number, consts), Instruction("STORE_FAST", slot + shift)]
    if raising:
        prologue += _load(position, consts)
    prologue += _give_up_list(slots, consts, shift)
    table: list[ExceptionEntry] = []
    if raising:
        prologue.append(Instruction("RAISE_VARARGS", 1, positions=unit.instructions[index].positions))
        entry = unit.instructions[index].handler
        if entry is not None:  # it is raised under that instruction's handler, and on its line
            at = len(prologue) - 1
            table.append(ExceptionEntry(at, at + 1, -entry.target - 1, entry.depth, entry.lasti))
    else:
        prologue.append(Instruction("JUMP_FORWARD", 0, target=-1))
    moved = len(prologue)
    for instruction in body:
        if instruction.target is not None:
            instruction.target += moved
    if not raising:
        prologue[-1].target = moved + index
    table += [ExceptionEntry(e.start + moved, e.end + moved, e.target + moved, e.depth, e.lasti)
              for e in unit.exception_table]
    if raising and table and table[0].target < 0:
        table[0] = table[0]._replace(target=-table[0].target - 1 + moved)
    names: dict[str, Any] = {"co_varnames": (".values",), "co_nlocals": 1} if shift else {}
    return encode_parts(code.replace(**names) if names else code, prologue + body, table,
                        co_consts=tuple(consts), co_argcount=1, co_posonlyargcount=0, co_kwonlyargcount=0,
                        co_flags=code.co_flags & ~_SIGNATURE_FLAGS)


def _give_up_list(slots: Sequence[int], consts: list[Any], shift: int) -> list[Instruction]:
    """Empty the list in local 0, and put there what the frame has in it."""
    first = _load(list(slots).index(0), consts) if 0 in slots and not shift else []
    consts.append(None)
    end = Instruction("LOAD_CONST", len(consts) - 1)
    emptied = [Instruction("LOAD_FAST", 0), end, end.copy(), Instruction("BUILD_SLICE", 2),
               Instruction("DELETE_SUBSCR", 0)]
    return [*first, *emptied, Instruction("STORE_FAST" if first else "DELETE_FAST", 0)]


def _shifted(instruction: Instruction, shift: int) -> Instruction:
    copy = instruction.copy()
    if shift and BY_NAME[copy.opname].operand is Operand.SLOT:
        copy.arg = (copy.arg or 0) + shift
    return copy


def _load(position: int, consts: list[Any]) -> list[Instruction]:
    number = next((at for at, const in enumerate(consts) if type(const) is int and const == position), len(consts))
    if number == len(consts):
        consts.append(position)
    return [Instruction("LOAD_FAST", 0), Instruction("LOAD_CONST", number), Instruction("BINARY_SUBSCR", 0)]
