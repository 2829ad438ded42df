"""Instructions of async code: await, async for, async with.   an awaitable  ->  the iterator that SEND drives"""

from __future__ import annotations

import types

from stator.code.instruction import Instruction
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.generators.suspended_frames import ITERABLE_COROUTINE
from stator.interp.iteration import is_iterator
from stator.interp.machine import op
from stator.interp.services import VM


@op
def GET_AWAITABLE(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack[-1]
    body = vm.generators.get(id(value))
    if is_a(value, types.CoroutineType):
        if body is not None and body.delegate() is not None:
            raise Raised(RuntimeError("coroutine is being awaited already"))
        return
    if body is not None and body.frame is not None and body.frame.code.co_flags & ITERABLE_COROUTINE:
        return
    frame.stack.pop()
    method = {1: "__aenter__", 2: "__aexit__"}.get(instr.arg)
    text = f"object {name_in_errors(type(value))} can't be used in 'await' expression" if method is None else \
        f"'async with' received an object from {method} that does not implement __await__: {type(value).__name__}"
    vm.call(vm.special_method(value, "__await__", text), (), {}, Awaited(None))


class Awaited(Continuation):
    """The iterator that `__await__` answers with."""

    __slots__ = ("cont",)

    def __init__(self, cont: Continuation | None) -> None:
        self.cont = cont

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        body = vm.generators.get(id(value))
        if is_a(value, types.CoroutineType) or body is not None and body.code.co_flags & ITERABLE_COROUTINE:
            raise Raised(TypeError("__await__() returned a coroutine"))
        if body is None and not is_iterator(type(value)):
            raise Raised(TypeError(f"__await__() returned non-iterator of type '{name_in_errors(type(value))}'"))
        vm.give(value, self.cont)


@op
def GET_AITER(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack.pop()
    text = f"'async for' requires an object with __aiter__ method, got {name_in_errors(type(value))}"
    vm.call(vm.special_method(value, "__aiter__", text), ())


@op
def GET_ANEXT(vm: VM, frame: Frame, instr: Instruction) -> None:
    value = frame.stack[-1]  # CPython looks for __anext__ when it has the iterator, one instruction earlier
    text = f"'async for' received an object from __aiter__ that does not implement __anext__: {type(value).__name__}"
    awaitable = vm.call_sync(vm.special_method(value, "__anext__", text), ())
    if not is_a(awaitable, types.CoroutineType) and type(awaitable).__name__ != "async_generator_asend":
        text = f"'async for' received an invalid object from __anext__: {type(awaitable).__name__}"
        try:
            missing = f"object {type(awaitable).__name__} can't be used in 'await' expression"
            awaitable = vm.call_sync(vm.special_method(awaitable, "__await__", missing), ())
        except Raised as raised:
            error = TypeError(text)
            error.__cause__ = error.__context__ = raised.exc
            raise Raised(error, chained=True) from None
    frame.stack.append(awaitable)


@op
def END_ASYNC_FOR(vm: VM, frame: Frame, instr: Instruction) -> None:
    exc = frame.stack.pop()
    if not is_a(exc, StopAsyncIteration):
        raise Raised(exc, again=True)
    frame.stack.pop()
