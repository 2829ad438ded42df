"""Opcodes of `await`, `async for` and `async with`, and what `yield from` delegates to."""

from __future__ import annotations

import types

from stator.code.instruction import Instruction
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import Frame, Raised
from stator.interp.generators.generator_bodies import COROUTINE, ITERABLE_COROUTINE
from stator.interp.machine import op
from stator.interp.services import VM


@op
def GET_YIELD_FROM_ITER(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack[-1]
    if is_a(value, types.CoroutineType):
        if not frame.code.co_flags & (COROUTINE | ITERABLE_COROUTINE):
            raise Raised(TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator"))
        return
    if is_a(value, types.GeneratorType):
        return
    vm.get_iter(frame.stack.pop())


@op
def GET_AWAITABLE(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    if is_a(value, types.CoroutineType):
        frame.stack.append(value)
        return
    body = vm.generators.get(id(value))
    if body is not None and body.frame is not None and body.frame.code.co_flags & ITERABLE_COROUTINE:
        frame.stack.append(value)
        return
    method = vm.find(type(value), "__await__")
    if method is vm.MISSING:
        if instr.arg == 1:
            text = f"'async with' received an object from __aenter__ that does not implement __await__: " \
                   f"{type(value).__name__}"
        elif instr.arg == 2:
            text = f"'async with' received an object from __aexit__ that does not implement __await__: " \
                   f"{type(value).__name__}"
        else:
            text = f"object {name_in_errors(type(value))} can't be used in 'await' expression"
        raise Raised(TypeError(text))
    vm.call(method, (value,))


@op
def GET_AITER(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    method = vm.find(type(value), "__aiter__")
    if method is vm.MISSING:
        raise Raised(TypeError("'async for' requires an object with __aiter__ method, "
                               f"got {name_in_errors(type(value))}"))
    vm.call(method, (value,))


@op
def GET_ANEXT(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack[-1]
    method = vm.find(type(value), "__anext__")
    if method is vm.MISSING:  # CPython asks when it has the iterator, which is one instruction earlier
        raise Raised(TypeError("'async for' received an object from __aiter__ that does not implement __anext__: "
                               + type(value).__name__))
    awaitable = vm.call_sync(method, (value,))
    if is_a(awaitable, types.CoroutineType) or type(awaitable).__name__ == "async_generator_asend":
        frame.stack.append(awaitable)
        return
    inner = vm.find(type(awaitable), "__await__")
    if inner is vm.MISSING:
        raise Raised(TypeError("'async for' received an invalid object from __anext__: " + type(awaitable).__name__))
    frame.stack.append(vm.call_sync(inner, (awaitable,)))


@op
def END_ASYNC_FOR(vm: VM, frame: Frame, instr: Instruction) -> None:
    exc = frame.stack.pop()
    if not is_a(exc, StopAsyncIteration):
        raise Raised(exc, again=True)
    frame.stack.pop()


@op
def BEFORE_ASYNC_WITH(vm: VM, frame: Frame, instr: Instruction) -> None:
    manager = frame.stack.pop()
    name = name_in_errors(type(manager))
    enter = vm.special_method(manager, "__aenter__",
                              f"'{name}' object does not support the asynchronous context manager protocol")
    leave = vm.special_method(manager, "__aexit__", f"'{name}' object does not support the asynchronous context "
                                                    "manager protocol (missed __aexit__ method)")
    frame.stack.append(leave)
    vm.call(enter, ())
