"""Rules for async iterators.   anext(it)  ->  the awaitable that `__anext__` gives; C code drives async generators

In: an async generator made inside, what it is awaited through, or an object with `__aiter__` or `__anext__`.  Out: the
objects that CPython makes.  C code resumes the body of an async generator through the frame hook.  With a default,
`anext` gives an object of C that awaits the answer of `__anext__`.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import AsyncGenerator, Callable

from stator.breaks import Break
from stator.host.value_kinds import name_in_errors
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
    if type(driven) is types.AsyncGeneratorType:
        note_generator(vm, driven)
    return vm.native(callee, (driven, *args))


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
