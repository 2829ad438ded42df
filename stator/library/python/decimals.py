"""Rules for decimals.   Decimal(1) / Decimal(7)  ->  the quotient, under the settings of the thread's decimal context

A trace computes on a context of its own with the user's settings, which are a fact from the first decimal on.  The
flags that were raised there are raised in the user's context when the effects are written back.  Who looks at a
context itself (getcontext, localcontext) breaks.
"""

from __future__ import annotations

import contextlib
import decimal
from collections.abc import Iterator
from typing import Any

from stator.breaks import Break
from stator.heap.adopt.immutable_values import guard_decimal_settings
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

_EXACT = (str, int, bool, float, decimal.Decimal, tuple, list)


@contextlib.contextmanager
def own_context(vm: VM) -> Iterator[None]:
    """Whatever decimals are computed, no flag of the user's is raised."""
    users = decimal.getcontext()
    vm.contexts.decimal = users.copy()
    vm.contexts.decimal.clear_flags()
    decimal.setcontext(vm.contexts.decimal)
    try:
        yield
    finally:
        decimal.setcontext(users)


def raised_flags(vm: VM) -> tuple[Any, ...]:
    """The signals that the trace met."""
    if vm.contexts.decimal is None:
        return ()
    return tuple(signal for signal, raised in vm.contexts.decimal.flags.items() if raised)


def raise_flags(signals: tuple[Any, ...]) -> None:
    """What the residual does with them."""
    flags = decimal.getcontext().flags
    for signal in signals:
        flags[signal] = True


@rule(decimal.Decimal)
def _make(vm: VM, /, *args: Any, **kwargs: Any) -> Any:
    vm.heap.expose_deep(args)
    args = specialise_deep(vm, args)
    if kwargs or len(args) > 1 or any(type(value) not in _EXACT for value in args):
        raise Break("SB013", "a decimal made under a context of its own, or of an object that converts itself")
    guard_decimal_settings(vm.heap)
    return vm.native_unhooked(decimal.Decimal, args)
