"""Rules for contexts of decimals.   with localcontext() as context: context.prec = 40; +x  ->  computed under it

In: contexts from outside, whose stand-ins are copies with the same settings, traps and flags; contexts made inside.
Out: what C code computes under them.  Changed settings and flags of contexts from outside, and the context of the
thread where it is another one at the end, are written back.
"""

from __future__ import annotations

import decimal
import types
from collections.abc import Callable, Iterable
from typing import Any, Literal

from stator.breaks import Break
from stator.heap.adopt.decimal_state import context_state, may_convert, same_thread_context
from stator.host.value_kinds import is_a
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned

_TEMPLATES = (decimal.DefaultContext, decimal.BasicContext, decimal.ExtendedContext)
_C_CODE = (types.MethodDescriptorType, types.WrapperDescriptorType)
_SIGNALS = next(base for base in type(decimal.getcontext().flags).__mro__ if "__getitem__" in vars(base))
_CONVERTS = ("create_decimal", "create_decimal_from_float")


def _methods(cls: type, *without: str) -> list[object]:
    return [value for name, value in vars(cls).items() if type(value) in _C_CODE and name not in without]


@rule(*_methods(decimal.Context, "__new__"), *_methods(_SIGNALS))
def _call_method(vm: VM, callee: Callable[..., object], holder: object, /, *args: object, **kwargs: object) -> object:
    args, kwargs = _plain(vm, args), dict(zip(kwargs, _plain(vm, kwargs.values()), strict=True))
    if any(map(vm.heap.is_opaque, (holder, *args, *kwargs.values()))) or callee.__name__ in _CONVERTS and any(
            map(may_convert, args)):
        raise Break("SB013", f"decimal.Context.{callee.__name__} of an object that converts itself")
    return vm.native_unhooked(callee, (holder, *args), kwargs)


@rule(decimal.Context, decimal.Context.__new__)
def _make(vm: VM, callee: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    tracker = vm.heap.by_original.get(id(decimal.DefaultContext))
    if tracker is not None and context_state(tracker.standin) != tracker.initial:
        raise Break("SB013", "a context made after decimal.DefaultContext was changed")
    vm.heap.guard_call(context_state, context_state(decimal.DefaultContext), Pinned(decimal.DefaultContext))
    return vm.native_unhooked(callee, _plain(vm, args), dict(zip(kwargs, _plain(vm, kwargs.values()), strict=True)))


def _plain(vm: VM, values: Iterable[object]) -> tuple[object, ...]:
    """Arguments for C code, which reads numbers and the items of containers."""
    given = tuple(values)
    vm.heap.expose_deep(given)
    return tuple(specialise_deep(vm, given))


@rule(decimal.getcontext)
def _get(vm: VM) -> object:
    current = decimal.getcontext()
    state = vm.contexts.decimal
    assert state is not None  # while a trace runs
    return vm.heap.adopt(state.users, CallOf(Pinned(decimal.getcontext), ())) if current is state.base else current


@rule(decimal.setcontext)
def _set(vm: VM, context: decimal.Context, /) -> None:
    if any(vm.heap.original_of(context) is each for each in _TEMPLATES):
        context = context.copy()
        context.clear_flags()
    vm.native_unhooked(decimal.setcontext, (context,))
    assert vm.contexts.decimal is not None
    vm.contexts.decimal.current = None if context is vm.contexts.decimal.base else context


class ContextManager:
    """A decimal.localcontext(), interpreted."""

    def __init__(self, context: decimal.Context | None, settings: dict[str, Any]) -> None:
        self._outer = decimal.getcontext()
        self._inner = (self._outer if context is None else context).copy()
        for name, value in settings.items():
            setattr(self._inner, name, value)

    def __enter__(self) -> decimal.Context:
        decimal.setcontext(self._inner)
        return self._inner

    def __exit__(self, *error: object) -> Literal[False]:
        decimal.setcontext(self._outer)
        return False


@rule(decimal.localcontext)
def _local(vm: VM, ctx: object = None, **settings: object) -> object:
    if ctx is not None and not is_a(ctx, decimal.Context):
        return vm.native_unhooked(decimal.localcontext, (ctx,), settings)  # raises CPython's own error
    if not settings.keys() <= {"prec", "rounding", "Emin", "Emax", "capitals", "clamp", "flags", "traps"}:
        return vm.native_unhooked(decimal.localcontext, (), settings)
    return vm.call_sync(ContextManager, (ctx, settings))


@rule(vars(decimal.Decimal)["from_float"])
def _from_float(vm: VM, cls: Callable[..., object], number: object, /) -> object:
    if type(number) not in (int, float, bool):
        raise Break("SB013", "decimal.Decimal.from_float of a subclass")
    same_thread_context(vm.heap)
    exact = vm.native_unhooked(decimal.Decimal.from_float, (number,))
    return exact if cls is decimal.Decimal else vm.call_sync(cls, (exact,))


@rule(vars(decimal.Decimal)["__format__"])
def _format(vm: VM, callee: Callable[..., object], number: object, form: object, /) -> object:
    if not is_a(form, str) or str(form).endswith(("n", "N")):
        raise Break("SB013", "a decimal in the format of the locale")
    return vm.native_unhooked(callee, (number, str(form)))
