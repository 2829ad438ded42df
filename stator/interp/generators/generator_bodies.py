"""The interpreted body of a generator, coroutine or async generator, between its steps."""

from __future__ import annotations

import types
from typing import Any

from stator import _hook
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, ExcState, Finished, Frame
from stator.interp.services import VM

GENERATOR, COROUTINE, ITERABLE_COROUTINE, ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


class Yielded:
    """A value an async generator yields (as against what an await inside it sends out)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Suspended:
    """The interpreted body of one generator."""

    __slots__ = ("frame", "started", "done", "running", "exc_state", "saved", "handle", "code", "namespace", "shown",
                 "adopted", "entered", "over", "alive", "__weakref__")

    def __init__(self, frame: Frame | None = None) -> None:
        self.frame: Frame | None = frame
        if frame is not None:
            self.code, self.namespace = frame.code, frame.scope.namespace
        self.started = False
        self.done = False
        self.running = False
        self.exc_state = ExcState()
        self.saved: ExcState | None = None
        self.shown: Any = None  # the frame object the program was shown, whose only true fact is its code
        self.handle: Any = None  # weakref to the object the program holds
        self.adopted: Any = None  # the source of the user's generator whose body this is
        self.entered = False  # it was advanced by this trace
        self.over = False  # it was over before
        self.alive: Any = None  # the object itself while its body runs: a caller's stack would hold it

    @property
    def kind(self) -> str:
        return kind_of(self.code)

    def frame_object(self) -> Any:
        """`gi_frame`: None once the body is over."""
        if self.frame is None:
            return None
        if self.shown is None:
            self.shown = _hook.new_frame(self.code, self.frame.scope.namespace, {})
        return self.shown

    def delegate(self) -> Any:
        """What a suspended body waits for (`gi_yieldfrom`, `cr_await`), or None."""
        return None if self.frame is None or self.running or not self.started else delegate_of(self.frame)

    def enter(self, vm: VM, cont: Continuation | None) -> Frame:
        frame = self.frame
        assert frame is not None
        self.running = self.started = self.entered = True
        self.alive = None if self.handle is None else self.handle()
        self.exc_state.previous = vm.exc_state
        self.saved, vm.exc_state = vm.exc_state, self.exc_state
        frame.is_base = False
        vm.push(frame, cont)
        return frame

    def suspend(self, vm: VM) -> None:
        assert self.saved is not None
        self.running = False
        vm.exc_state, self.saved = self.saved, None
        self.exc_state.previous = None

    def yielded(self, vm: VM, value: object) -> None:
        frame = self.frame
        assert frame is not None
        self.suspend(vm)
        if frame.is_base:
            self.alive = None
            raise Finished(value, yielded=True)
        parent = vm.frame = frame.parent
        frame.parent = None
        try:
            frame.cont.yielded(vm, parent, value)
        finally:
            self.alive = None  # a temporary nobody else holds is closed now, after its value was taken

    def finished(self, vm: VM, value: object) -> None:
        frame = self.frame
        assert frame is not None
        self.suspend(vm)
        self.done, self.frame, self.alive = True, None, None
        if frame.is_base:
            raise Finished(value)
        parent = vm.frame = frame.parent
        frame.cont.returned(vm, parent, value)

    def failed(self, vm: VM, exc: BaseException) -> BaseException:
        """The body raised: the generator is over; a StopIteration out of it is an error (PEP 479)."""
        self.suspend(vm)
        if is_a(exc, GeneratorExit) and self.frame is not None:  # closed: what it held goes now, not with a traceback
            self.frame.locals.clear()
            self.frame.stack.clear()
            self.frame.func = None
        self.done, self.frame = True, None
        return stopped_inside(self.kind, exc)


def kind_of(code: types.CodeType) -> str:
    flags = code.co_flags
    return "coroutine" if flags & COROUTINE else "async generator" if flags & ASYNC_GENERATOR else "generator"


def stopped_inside(kind: str, exc: BaseException) -> BaseException:
    """What leaves a body that raised `exc`: a StopIteration that nobody caught is an error (PEP 479)."""
    if is_a(exc, StopIteration) or kind == "async generator" and is_a(exc, StopAsyncIteration):
        error = RuntimeError(f"{kind} raised {type(exc).__name__}")
        error.__cause__ = error.__context__ = exc
        return error
    return exc


def delegate_of(frame: Frame) -> Any:
    """The iterator a suspended frame is delegating to (`yield from`, `await`), or None."""
    instructions = frame.unit.instructions
    following = instructions[frame.ip]
    if following.opname == "RESUME" and (following.arg or 0) & 3 in (2, 3):
        return frame.stack[-1]
    return None
