"""Functions that captured code compiles.   torch.compile(f)(x)  ->  f(x), as part of the trace

In: a call of what compiles functions (`makes_compiled` says which do).  Out: the compiled function, made for real, so
that the program sees its type and attributes; a call of it is part of the trace, like that of any compiled function.
One that outlives the call is made again by the residual, as eager makes a new one in each call.
"""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any

from stator import _core
from stator.breaks import Break
from stator.heap.blank_instances import CONSTANT_TYPES
from stator.interp.rule_registry import rule
from stator.interp.vm import VM


@dataclass(eq=False)
class Making:
    """A compiled function of the trace's own, the call that made it, and the attributes it had then."""

    compiled: Any
    maker: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attributes: dict[str, Any]


def makes_compiled(maker: Any) -> None:
    """Register `maker(function, **settings)`; without a function it makes the decorator."""
    @rule(maker)
    def make(vm: VM, /, model: Any = None, *args: Any, **settings: Any) -> Any:
        require_plain(vm, settings)
        if args or model is not None and type(model) is not types.FunctionType:
            raise refused("of something else than a function")
        if model is None:
            return functools.partial(maker, **settings)
        try:
            made = maker(model, **settings)
        except Exception as error:  # which of its arguments it refuses, eager says
            raise refused("that it refuses") from error
        if type(made) is not _core.CompiledFunction:
            raise refused("that makes something else than a compiled function")
        vm.fresh[id(made)] = made
        vm.functions.compiled_inside[id(made)] = Making(made, maker, (model,), settings, dict(vars(made)))
        return made


def refused(what: str) -> Break:
    return Break("SB010", f"a call of compile {what}")


def require_plain(vm: VM, settings: dict[str, Any]) -> None:
    """What a compiled function is made with outlives the trace: constants and functions of the program."""
    for name, value in settings.items():
        if type(value) not in CONSTANT_TYPES and not (type(value) is types.FunctionType and id(value) not in vm.fresh):
            raise refused(f"whose argument {name!r} is no constant")
