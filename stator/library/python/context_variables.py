"""Rules for context variables and decimal contexts.

    scale.get()               ->  its value in this context, read again by a guard
    token = scale.set(3)      ->  noted: later get()s of the trace see 3, and the residual sets it
    scale.reset(token)        ->  the set is forgotten, where it was the last one of this variable
    numpy.errstate()          ->  a break: C code reads numpy's variables, and would read them as before the trace
    Decimal(1) / Decimal(7)   ->  the quotient, under the guarded settings of the thread's decimal context
"""

from __future__ import annotations

import contextlib
import contextvars
import decimal
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.guards.guard import MISSING, Kind
from stator.heap.adopt.decimal_state import ThreadContext, may_convert, same_thread_context
from stator.interp.frame import Raised
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.native.rows_library import DECIMAL_METHODS
from stator.source import CallOf, Pinned, Source


@dataclass(eq=False)
class ContextSet:
    """A value that the program has set and not reset. The token was made in a context of its own."""

    variable: contextvars.ContextVar[Any]
    source: Source
    token: contextvars.Token[Any]
    value: Any


def value_in_context(variable: contextvars.ContextVar[Any]) -> Any:
    """A pure reader for guards: the value, or MISSING where there is none and no default."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


def _without_default(variable: contextvars.ContextVar[Any]) -> Any:
    """A pure reader for guards: the value that was set in this context, or MISSING."""
    return variable.get(MISSING)


@rule(contextvars.ContextVar.get)
def _get(vm: VM, variable: object, default: object = MISSING, /) -> Any:
    if vm.heap.tracker_of(variable) is None or vm.contexts.entered:
        return _get_made(vm, variable, default)
    last = _last_set(vm, vm.guard_identity(variable))
    if last is not None:
        return last.value
    reader: Any = value_in_context if default is MISSING else _without_default
    source = CallOf(Pinned(reader), (vm.heap.source_of(variable),))
    if source not in vm.heap.answers:
        value = reader(variable)
        if value is MISSING:
            vm.heap.guard(source, Kind.ID, MISSING)
        vm.heap.answers[source] = value if value is MISSING else vm.heap.adopt(value, source)
    value = vm.heap.answers[source]
    if value is MISSING and default is MISSING:
        raise Raised(LookupError(vm.heap.original_of(variable)))
    return default if value is MISSING else value


def _get_made(vm: VM, variable: object, default: object) -> object:
    """The value in a context made inside, or of a variable made inside."""
    original = vm.heap.original_of(variable)
    if original is not variable or vm.heap.tracker_of(variable) is not None:
        if original not in contextvars.copy_context() and default is MISSING:
            raise Break("SB013", "the default of a ContextVar from outside, in a context made inside")
    return vm.native_unhooked(contextvars.ContextVar.get, (original,) if default is MISSING else (original, default))


def _last_set(vm: VM, variable: object) -> ContextSet | None:
    return next((each for each in reversed(vm.contexts.sets) if each.variable is variable), None)


@rule(contextvars.ContextVar.set)
def _set(vm: VM, first: object, second: object, /) -> Any:
    if vm.contexts.entered:
        return vm.native_unhooked(contextvars.ContextVar.set, (vm.heap.original_of(first), second))
    if vm.heap.tracker_of(first) is None:
        raise Break("SB013", "a ContextVar made inside the trace")
    if vm.effects.watched:
        raise Break("SB015", "a context variable is set after output through the user's own code, which can see it")
    variable = vm.guard_identity(first)
    # numpy's C code reads its settings of floating-point errors and of printing.
    if any(value is variable for name in ("_ufunc_config", "printoptions")
           for value in vars(sys.modules.get(f"numpy._core.{name}", sys)).values()):
        raise Break("SB013", f"the context variable {variable.name} is set, which C code reads")
    token = contextvars.Context().run(variable.set, None)
    vm.fresh[id(token)] = token
    vm.contexts.sets.append(ContextSet(variable, vm.heap.source_of(first), token, second))
    return token


@rule(contextvars.ContextVar.reset)
def _reset(vm: VM, first: object, second: object, /) -> Any:
    """Tokens from outside, used ones and those of other variables are CPython's to take or to refuse."""
    if vm.contexts.entered:
        return vm.native_unhooked(contextvars.ContextVar.reset, (vm.heap.original_of(first), second))
    last = None if vm.heap.tracker_of(first) is None else _last_set(vm, vm.guard_identity(first))
    if last is None or last.token is not second:
        raise Break("SB001", "the reset of a context variable to another value than that before its last set()")
    vm.contexts.sets.remove(last)
    return None


@contextlib.contextmanager
def own_context(vm: VM) -> Iterator[None]:
    """Compute decimals on a copy of the context: the flags of the original stay unchanged."""
    users = decimal.getcontext()
    vm.contexts.decimal = vm.heap.changes.decimals = ThreadContext(users)
    decimal.setcontext(vm.contexts.decimal.base)
    try:
        yield
    finally:
        decimal.setcontext(users)


@rule(decimal.Decimal, decimal.Decimal.__new__)
def _make(vm: VM, callee: object, /, *args: object, **kwargs: object) -> Any:
    vm.heap.expose_deep(args)
    first, args = (decimal.Decimal, args) if callee is decimal.Decimal else (args[0], args[1:])
    args = specialise_deep(vm, args)
    given = (*args, *kwargs.values())
    if any(map(may_convert, given)) or any(map(vm.heap.is_opaque, given)):
        raise Break("SB013", "a decimal made of an object that converts itself")
    same_thread_context(vm.heap)
    return vm.native_unhooked(decimal.Decimal.__new__, (first, *args), kwargs)


# Methods that compute under the context of the thread, where they are given no other.
@rule(*[vars(decimal.Decimal)[name] for name in DECIMAL_METHODS.split()])
def _compute(vm: VM, callee: types.MethodDescriptorType, number: object, /, *args: object, **kwargs: object) -> object:
    vm.heap.expose_deep(args)
    if any(map(vm.heap.is_opaque, (*args, *kwargs.values()))):
        raise Break("SB013", f"decimal.Decimal.{callee.__name__} under a context that is not known")
    return vm.native_unhooked(callee, (number, *specialise_deep(vm, args)), kwargs)
