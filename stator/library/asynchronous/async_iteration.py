"""Rules for async iterators.   anext(it)  ->  the awaitable that `__anext__` gives; C code drives async generators

In: an async generator made inside, what it is awaited through, or an object with `__aiter__` or `__anext__`.  Out: the
objects that CPython makes.  C code resumes the body of an async generator through the frame hook.  With a default,
`anext` gives an object of C that awaits the answer of `__anext__`.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
import types
import warnings
from collections.abc import AsyncGenerator, Callable

from stator.breaks import Break
from stator.code.intrinsics import ATHROWN_BY_PARTS, THROWN_BY_PARTS, UNAWAITED_STEPS
from stator.graph.state.quiet_logging import Heard
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.calls.native_calls import failed, refuse_not_rebuilt
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, find
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.asynchronous.event_loop import note_generator

_DRIVERS = ("__aiter__", "__anext__", "asend", "athrow", "aclose", "send", "throw", "close", "__await__", "__iter__",
            "__next__")


async def _sample() -> AsyncGenerator[None, None]:
    yield None


class Answered:
    """An async iterator that has its next awaitable already."""

    def __init__(self, awaitable: object) -> None:
        self.awaitable = awaitable

    def __anext__(self) -> object:
        return self.awaitable


def _awaitables() -> tuple[type, ...]:
    agen = _sample()
    send, close = agen.asend(None), agen.aclose()
    kinds = (types.AsyncGeneratorType, type(send), type(close), type(anext(Answered(()), None)))  # type: ignore[call-overload]
    send.close()
    close.close()
    return kinds


@rule(*[vars(owner)[name] for owner in _awaitables() for name in _DRIVERS if name in vars(owner)])
def _drive(vm: VM, callee: Callable[..., object], driven: object, /, *args: object) -> object:
    if type(driven) is types.AsyncGeneratorType and id(driven) not in vm.generators:
        raise Break("SB014", "an async generator from outside")
    if vm.heap.is_opaque(driven):
        raise Break("SB014", "what an async generator from outside is awaited through")
    if sys.get_asyncgen_hooks().firstiter is not None:
        raise Break("SB018", "an async generator under an event loop's hooks")
    name = callee.__name__
    if name in ("throw", "athrow") and args:
        kind = args[0] if is_a(args[0], type) else type(args[0])
        if type(kind) is type:
            vm.generators.thrown.add(kind)
    if type(driven) is not types.AsyncGeneratorType:
        if name == "throw" and len(args) > 1 and THROWN_BY_PARTS:
            raise Break("SB013", "throw() of an async generator's method with an exception in parts: CPython may warn")
        if name not in ("__await__", "__iter__"):
            vm.generators.begin(driven)
        return vm.native(callee, (driven, *args))
    note_generator(vm, driven)
    return _new_step(vm, callee, driven, args)


def _new_step(vm: VM, callee: Callable[..., object], generator: object, args: tuple[object, ...]) -> object:
    """Make what an async generator is awaited through, which runs no Python code."""
    by_parts = callee.__name__ == "athrow" and len(args) > 1 and ATHROWN_BY_PARTS
    if by_parts:
        vm.call_sync(warnings.warn, (by_parts, DeprecationWarning))
    try:
        with Heard() if by_parts else contextlib.nullcontext():
            made = callee(generator, *args)
    except Exception as error:
        raise failed(vm, error, callee, (generator, *args), None) from None
    if UNAWAITED_STEPS and made is not generator:
        vm.generators.unbegun[id(made)] = made
    if vm.policy.not_rebuilt:
        refuse_not_rebuilt(vm, made)
    return made


@rule(builtins.anext)
def _anext(vm: VM, iterator: object, default: object = MISSING, /) -> object:
    text = f"'{name_in_errors(type(iterator))}' object is not an async iterator"
    awaitable = vm.call_sync(vm.special_method(iterator, "__anext__", text), ())
    if default is MISSING:
        return awaitable
    if type(awaitable) is types.GeneratorType:  # of types.coroutine: C code asks for the flags of its code
        raise Break("SB014", "anext() with a default, of a coroutine that is a generator")
    return vm.native_unhooked(builtins.anext, (Answered(awaitable), default))


@rule(builtins.aiter)
def _aiter(vm: VM, iterable: object, /) -> object:
    text = f"'{name_in_errors(type(iterable))}' object is not an async iterable"
    found = vm.call_sync(vm.special_method(iterable, "__aiter__", text), ())
    if find(vm, type(found), "__anext__") is MISSING:
        raise Raised(TypeError(f"aiter() returned not an async iterator of type '{name_in_errors(type(found))}'"))
    return found
