"""One suspended frame, natively.   a frame with its values, what it answered  ->  its caller, ready to go on

A continuation of the interpreter does to a `NativeFrame` what it would do to an interpreted frame: push a value, take
an iterator off the stack, go on somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stator.code.decode import decode
from stator.host.own_code import OWN_FOLDER
from stator.interp.frame import NULL, UNBOUND, Raised
from stator.interp.generators.generators import code_of, finish, mark_running, new_generator, stand, standing
from stator.interp.suspend import FrameState


class Saved:
    """A place of the stack that PUSH_EXC_INFO has filled: the exception handled before, and the one handled since."""

    __slots__ = ("previous", "current")

    def __init__(self, previous: BaseException | None, current: BaseException) -> None:
        self.previous, self.current = previous, current


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

    def kinds(self) -> list[str]:
        return ["null" if item is NULL else "exc_info" if type(item) is Saved else "value" for item in self.stack]

    def stack_values(self) -> list[Any]:
        found: list[Any] = []
        for item in self.stack:
            if type(item) is Saved:
                found += [item.previous, item.current]
            elif item is not NULL:
                found.append(item)
        return found

    def bound_slots(self) -> tuple[int, ...]:
        """The slots that hold a value: a dead one may hold none."""
        return tuple(slot for slot, value in zip(self.state.slots, self.slots, strict=True) if value is not UNBOUND)

    def given_up(self) -> list[Any]:
        """Its locals and its stack, for its native code, which alone holds them from then on."""
        found = [value for value in self.slots if value is not UNBOUND]
        found += [item.current if type(item) is Saved else item for item in self.stack if item is not NULL]
        self.slots, self.stack = [], []
        return found

    # what a continuation asks of the machine

    def give(self, value: Any, cont: Any = None) -> None:
        if cont is None:
            self.stack.append(value)
        else:
            cont.returned(self, self, value)

    def set_context(self, exc: BaseException) -> BaseException:
        return exc

    def is_from_outside(self, value: object) -> bool:
        return False


def pass_on(cont: Any, caller: NativeFrame, value: Any, yielded: bool,
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
    """Run the body of a generator to its next yield.  (value, yielded?)

    The body runs in a generator of its own, `made`; where that stands afterwards, the program's own generator is
    made to stand.
    """
    generator = frame.generator
    try:
        value = made.send(None) if invoke is None else invoke(made.send, None)
    except StopIteration as stop:
        finish(generator)
        return stop.value, False
    except BaseException:
        finish(generator)
        raise
    found = standing(made)
    assert found is not None
    code = code_of(generator)
    unit, resumed = decode(code), decode(found.code)
    moved = len(resumed.instructions) - len(unit.instructions)
    shift = resumed.nlocalsplus - unit.nlocalsplus
    stand(generator, found.index - moved, tuple(slot - shift for slot in found.slots), found.kinds, found.values, True)
    finish(made)
    return value, True


class NewOwners:
    """Generators that only the suspended frames hold, moved into new ones that only the native frames hold.

    Whoever called us still holds the old ones; the program would see them dropped too late.
    """

    def __init__(self, states: list[FrameState], values: tuple[Any, ...]) -> None:
        self._moved: dict[int, tuple[Any, Any]] = {}
        self._running: dict[int, Any] = {}  # the globals of those whose frames are among the suspended
        given = iter(values)
        for state in states:
            for place in state.places():
                value = next(given)
                if place[0] == "body":
                    self._running[id(value)] = state.namespace

    def taken(self, state: FrameState, values: Iterable[Any]) -> list[Any]:
        return [self._move(value) if place in state.owned else value
                for place, value in zip(state.places(), values, strict=True)]

    def _move(self, generator: Any) -> Any:
        known = self._moved.get(id(generator))
        if known is not None:
            return known[1]
        found = standing(generator)
        if found is None and id(generator) not in self._running:
            return generator
        namespace = self._running[id(generator)] if found is None else found.namespace
        made = new_generator(code_of(generator), namespace, generator.__name__, generator.__qualname__)
        if found is None:
            mark_running(made)
        else:
            stand(made, found.index, found.slots, found.kinds, found.values, found.started)
        finish(generator)
        self._moved[id(generator)] = generator, made
        return made


# ---------------------------------------------------------------------- surroundings


def own_frames_dropped(tb: Any) -> Any:
    """A traceback without Stator's frames at its top."""
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
