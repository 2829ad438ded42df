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


def _group_rule(function: Any) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        vm.heap.expose_deep(args)
        for value in args:
            if vm.heap.is_opaque(value):
                raise Break("SB005", "a group of exceptions from outside")
        rest = tuple(vm.python_callable(value) if type(value) is types.BuiltinFunctionType else value
                     for value in args[1:])
        vm.give(vm.native(function, (args[0], *rest), kwargs), cont)
    return run


for _name in ("split", "subgroup", "derive"):
    rule(getattr(BaseExceptionGroup, _name))(_group_rule(getattr(BaseExceptionGroup, _name)))


def _driver_rule(function: Any) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        if type(args[0]) is types.AsyncGeneratorType and id(args[0]) not in vm.generators:
            raise Break("SB014", "an async generator from outside")
        if vm.heap.is_opaque(args[0]):
            raise Break("SB014", "what an async generator from outside is awaited through")
        if sys.get_asyncgen_hooks().firstiter is not None:
            raise Break("SB018", "an async generator under an event loop's hooks")
        vm.give(vm.native(function, args, kwargs), cont)
    return run


async def _sample() -> Any:
    yield None


def _awaitables() -> tuple[type, ...]:
    agen = _sample()
    send, close = agen.asend(None), agen.aclose()
    kinds = (types.AsyncGeneratorType, type(send), type(close))
    send.close()
    close.close()
    return kinds


for _owner in _awaitables():
    for _name in ("__aiter__", "__anext__", "asend", "athrow", "aclose", "send", "throw", "close", "__await__",
                  "__iter__", "__next__"):
        if _name in vars(_owner):
            rule(vars(_owner)[_name])(_driver_rule(vars(_owner)[_name]))
