"""Warnings of C code that the trace runs.   np.int8(127) + np.int8(1)  ->  an effect, at the line of the program

In: a call of a numpy scalar or array, or a conversion of a tensor.  Out: its result; its warnings are noted, and issued
again after the graph, under the filters of that moment.  `numpy.seterr` decides which floating-point errors are warned
of: the trace hears them all, keeps those that are, and guards the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch

from stator.breaks import Break
from stator.graph.state.quiet_logging import Heard
from stator.guards.guard import Kind
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import Raised
from stator.interp.noted_effects import Converted, note_warning
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC, specialise
from stator.source import CallOf, Pinned

WARNING_TYPES = frozenset({numpy.ndarray, *numpy.sctypeDict.values()})
# Methods that C code asks for numbers, and the type that it wants.
CONVERSIONS = {"__float__": float, "__int__": int, "__index__": int, "__complex__": complex, "__trunc__": None,
               "__len__": None, "__hash__": None, "__length_hint__": None}
_SETTINGS = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}


def call_heard(vm: VM, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run C code, and note what it warns of."""
    vm.hears_numpy = True
    try:
        with Heard() as said, numpy.errstate(all="warn"):
            result = vm.native(fn, args, kwargs)
    except Raised as raised:  # a filter makes an error of the warning, which the setting may ignore or replace
        if is_a(raised.exc, Warning):
            if setting_for(str(raised.exc), numpy.geterr()) != "warn":
                raise refused(raised.exc) from None
            guard_settings(vm)
        raise
    finally:
        vm.hears_numpy = False
    if said:
        note_said(vm, said)
    return result


def note_said(vm: VM, said: list[Any]) -> None:
    """Keep the warnings for replay that numpy's settings let through."""
    settings = numpy.geterr()
    guard_settings(vm)
    for each in said:
        text = str(each.message)
        setting = setting_for(text, settings)
        if setting == "warn":
            note_warning(vm, text, each.category)
        elif setting != "ignore":
            raise refused(text)


def setting_for(text: str, settings: Any) -> str:
    """Setting of numpy that decides about the warning with this text."""
    return next((settings[name] for start, name in _SETTINGS.items() if text.startswith(start)), "warn")


def refused(text: object) -> Break:
    return Break("SB013", f"numpy.seterr: {text}, which is not only warned of", asks_caller=True)


def guard_settings(vm: VM) -> None:
    vm.heap.guard(CallOf(Pinned(error_settings)), Kind.FRESH_CALL, error_settings())


def error_settings() -> tuple[str, ...]:
    """A pure reader for guards: what numpy does about floating-point errors."""
    return tuple(numpy.geterr().values())


def note_conversion(vm: VM, value: Any) -> None:
    """float(t) of a tensor that autograd records: torch warns of it, once or always."""
    if torch.is_grad_enabled() and value.requires_grad:
        note_warning(vm, "", UserWarning, kind=Converted)


def number_for_c(method: str, value: object) -> object:
    """The answer of a conversion that C code asks for; where CPython warns of it, it asks itself."""
    if type(value) in SYMBOLIC:
        return specialise(value, f"the answer of {method}")
    wanted = CONVERSIONS[method]
    if method == "__trunc__" or wanted is not None and type(value) is not wanted and is_a(value, wanted):
        raise Break("SB013", f"{method} gives a {name_in_errors(type(value))}: CPython may warn", asks_caller=True)
    return value
