"""Rules for exception groups and async generators, whose C methods call back into interpreted code.

    group.split(ValueError)   C walks the group, the program's `derive` is interpreted
    await agen.asend(v)       C drives our driver of the interpreted frame (see generators.py)
"""

from __future__ import annotations

import sys
import types
from typing import Any

from stator.breaks import Break
from stator.interp.rule_registry import rule
from stator.interp.vm import VM


@rule(BaseExceptionGroup.split, BaseExceptionGroup.subgroup, BaseExceptionGroup.derive)
def _take_apart(vm: VM, callee: Any, group: Any, /, *args: Any) -> Any:
    vm.heap.expose_deep((group, *args))
    for value in (group, *args):
        if vm.heap.is_opaque(value):
            raise Break("SB005", "a group of exceptions from outside")
    given = [vm.python_callable(value) if type(value) is types.BuiltinFunctionType else value for value in args]
    return vm.native(callee, (group, *given))


async def _sample() -> Any:
    yield None


def _awaitables() -> tuple[type, ...]:
    agen = _sample()
    send, close = agen.asend(None), agen.aclose()
    kinds = (types.AsyncGeneratorType, type(send), type(close))
    send.close()
    close.close()
    return kinds


_DRIVERS = ("__aiter__", "__anext__", "asend", "athrow", "aclose", "send", "throw", "close", "__await__", "__iter__",
            "__next__")


@rule(*[vars(owner)[name] for owner in _awaitables() for name in _DRIVERS if name in vars(owner)])
def _drive(vm: VM, callee: Any, driven: Any, /, *args: Any) -> Any:
    if type(driven) is types.AsyncGeneratorType and id(driven) not in vm.generators:
        raise Break("SB014", "an async generator from outside")
    if vm.heap.is_opaque(driven):
        raise Break("SB014", "what an async generator from outside is awaited through")
    if sys.get_asyncgen_hooks().firstiter is not None:
        raise Break("SB018", "an async generator under an event loop's hooks")
    return vm.native(callee, (driven, *args))
