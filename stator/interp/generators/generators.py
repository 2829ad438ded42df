"""Interpreted generators and coroutines, behind real generator objects.

    RETURN_GENERATOR  ->  a real generator whose body drives the interpreted frame

The program sees a genuine generator, coroutine or async generator, so C code can iterate and await it and its
refcount works as usual (dropping it closes the frame).  The loop itself resumes the frame without recursion.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

from stator.breaks import Break
from stator.code.instruction import Instruction
from stator.interp.frame import Continuation, Finished, Frame
from stator.interp.generators.delegation import resume, throw
from stator.interp.generators.generator_bodies import ASYNC_GENERATOR, COROUTINE, Suspended, Yielded
from stator.interp.machine import Bug, Thunk, op
from stator.interp.services import VM

# ---------------------------------------------------------------------- real objects


class _Raw:
    """Awaiting this sends `value` out of a coroutine as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        return (yield self.value)


def step(vm: VM, body: Suspended, value: object, exc: BaseException | None) -> tuple[bool, Any]:
    """Resume from C code: a nested loop, until the next yield.  (yielded?, value)"""
    def begin() -> None:
        if exc is None:
            resume(vm, body, value, NESTED)
        else:
            throw(vm, body, exc, NESTED)
    result = vm.run(Thunk(begin))
    return (True, result.value) if type(result) is Finished else (False, result)


class Nested(Continuation):
    """The generator was resumed by C code: hand its value to the nested loop's caller."""

    __slots__ = ()

    def yielded(self, vm: VM, frame: Frame, value: object) -> None:
        raise Finished(value, yielded=True)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        raise Finished(value)


NESTED = Nested()


def drive_generator(vm: VM, body: Suspended) -> Any:
    value, exc = None, None
    try:
        yield None  # primed at once, so that dropping the object always closes the body
        while True:
            result = [*step(vm, body, value, exc)]  # emptied as it is handed on: its last value must not live here
            if not result[0]:
                return result.pop()
            value = exc = None
            try:
                value = yield vm.walked(result.pop()) if type(result[1]) is types.GeneratorType else result.pop()
            except BaseException as error:
                if not vm.generators.live:  # dropped after the trace: nothing of the program is run any more
                    raise
                exc = error
                exc.__traceback__ = None
    except GeneratorExit:
        _close_dropped(vm, body)


def _close_dropped(vm: VM, body: Suspended) -> None:
    if body.started and not body.done and not body.running and vm.generators.live:
        leaving = GeneratorExit()
        try:
            step(vm, body, None, leaving)
        except (GeneratorExit, StopIteration):
            leaving.__traceback__ = None  # else it and the frames that it came through, the program's too, are a cycle
        except (Break, Bug):  # whoever dropped the generator would not hear of it
            frame = vm.frame

            def stop() -> None:
                assert vm.pending is not None
                vm.frame = frame
                vm.steps -= 1  # this thunk is no instruction to stop at
                raise vm.pending

            vm.frame = Thunk(stop)


async def drive_coroutine(vm: VM, body: Suspended) -> Any:
    value, exc = None, None
    try:
        await _Raw(None)
        while True:
            more, result = step(vm, body, value, exc)
            if not more:
                return result
            value = exc = None
            try:
                value = await _Raw(result)
            except BaseException as error:
                if not vm.generators.live:  # dropped after the trace: nothing of the program is run any more
                    raise
                exc = error
                exc.__traceback__ = None
    except GeneratorExit:
        _close_dropped(vm, body)


async def drive_async_generator(vm: VM, body: Suspended) -> Any:
    value, exc = None, None
    while True:
        more, result = step(vm, body, value, exc)
        if not more:
            return
        value = exc = None
        try:
            if type(result) is Yielded:
                value = yield result.value
            else:
                value = await _Raw(result)
        except BaseException as error:
            if not vm.generators.live:  # dropped after the trace: nothing of the program is run any more
                raise
            exc = error
            exc.__traceback__ = None


def make_generator(vm: VM, frame: Frame) -> Any:
    """The object that calling a generator function returns."""
    body = Suspended(frame)
    frame.generator = body
    flags = frame.code.co_flags
    if flags & ASYNC_GENERATOR:
        made: Any = drive_async_generator(vm, body)
    elif flags & COROUTINE:
        made = drive_coroutine(vm, body)
        made.send(None)
    else:
        made = drive_generator(vm, body)
        next(made)
    func = frame.func
    made.__name__ = func.__name__ if func is not None else frame.code.co_name
    made.__qualname__ = func.__qualname__ if func is not None else frame.code.co_qualname
    bind_body(vm, made, body)
    return made


def bind_body(vm: VM, made: object, body: Suspended) -> None:
    """`made` is what the program holds of `body`."""
    key = id(made)
    vm.generators[key] = body
    vm.generators.bodies.append(weakref.ref(body))
    body.handle = weakref.ref(made, lambda _: vm.generators.pop(key, None))


def stand_in_generator(vm: VM, body: Suspended, original: Any) -> Any:
    """What the trace holds in place of a generator from outside: dropping it closes the body, in the trace."""
    if type(original) is types.CoroutineType:
        made: Any = drive_coroutine(vm, body)
        made.send(None)
    else:
        made = drive_generator(vm, body)
        next(made)
    made.__name__, made.__qualname__ = original.__name__, original.__qualname__
    bind_body(vm, made, body)
    return made


# ---------------------------------------------------------------------- opcodes


@op
def RETURN_GENERATOR(vm: VM, frame: Frame, instr: Instruction) -> None:
    made = make_generator(vm, frame)
    suspended = frame
    parent, cont, is_base = frame.parent, frame.cont, frame.is_base
    suspended.parent = suspended.outer = None
    if is_base:
        raise Finished(made)
    vm.frame = parent
    if cont is None:
        parent.stack.append(made)  # type: ignore[union-attr]
    else:
        cont.returned(vm, parent, made)


@op
def YIELD_VALUE(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.generator.yielded(vm, frame.stack.pop())


@op
def ASYNC_GEN_WRAP(vm: VM, frame: Frame, instr: Instruction) -> None:
    frame.stack.append(Yielded(frame.stack.pop()))
