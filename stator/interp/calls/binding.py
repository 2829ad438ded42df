"""Bind a call's arguments to a Python function's parameters.   f(1, *a, k=2)  ->  the frame's local slots

None means the call does not fit; CPython's own binding then words the TypeError.
"""

from __future__ import annotations

import types
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.interp.frame import UNBOUND
from stator.interp.services import VM
from stator.shapes.symbolic_values import UNREAD, unread
from stator.source import Attr, Index

_VARARGS, _VARKEYWORDS = 0x04, 0x08


def bind_arguments(vm: VM, func: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
                   nlocalsplus: int) -> list[Any] | None:
    code = func.__code__
    positional = code.co_argcount
    flags = code.co_flags
    given = len(args)
    if not kwargs and given == positional and not code.co_kwonlyargcount and not flags & 0x0C:
        slots = list(args)
        slots += [UNBOUND] * (nlocalsplus - given)
        return slots
    slots = [UNBOUND] * nlocalsplus
    total = positional + code.co_kwonlyargcount
    taken = min(given, positional)
    slots[:taken] = args[:taken]
    if flags & _VARARGS:
        slots[total] = (*args[positional:],)  # `f(*t)` with `*args`: not `t` itself
    elif given > positional:
        return None
    if not _bind_keywords(code, slots, kwargs or {}, total):
        return None
    return slots if _bind_defaults(vm, func, slots, taken, positional, total) else None


def _bind_keywords(code: types.CodeType, slots: list[Any], kwargs: dict[str, Any], total: int) -> bool:
    names = code.co_varnames
    first_keyword = code.co_posonlyargcount
    extra: dict[str, Any] | None = None
    if code.co_flags & _VARKEYWORDS:
        extra = slots[total + bool(code.co_flags & _VARARGS)] = {}
    for name, value in kwargs.items():
        try:
            slot = names.index(name, first_keyword, total)
        except ValueError:
            if extra is None:
                return False
            extra[name] = value
            continue
        if slots[slot] is not UNBOUND:
            return False
        slots[slot] = value
    return True


def _bind_defaults(vm: VM, func: types.FunctionType, slots: list[Any], taken: int, positional: int,
                   total: int) -> bool:
    first = positional
    for slot in range(taken, positional):
        if slots[slot] is UNBOUND:
            defaults = function_defaults(vm, func)
            first = positional - len(defaults)
            if slot < first:
                return False
            slots[slot] = defaults[slot - first]
    for slot in range(positional, total):
        if slots[slot] is UNBOUND:
            value = keyword_default(vm, func, func.__code__.co_varnames[slot])
            if value is UNBOUND:
                return False
            slots[slot] = value
    return True


def function_defaults(vm: VM, func: types.FunctionType) -> tuple[Any, ...]:
    raw = func.__defaults__ or ()
    if id(func) in vm.fresh:
        return raw
    found = vm.functions.defaults.get(id(func))
    if found is None:
        source = Attr(vm.heap.source_of(func), "__defaults__")
        vm.heap.guard(source, Kind.ID, func.__defaults__) if func.__defaults__ is not None else \
            vm.heap.guard(source, Kind.EQUALS, None)
        found = vm.functions.defaults[id(func)] = tuple(
            value if value is None else vm.heap.adopt(value, Index(source, i)) for i, value in enumerate(raw))
    return found


def keyword_default(vm: VM, func: types.FunctionType, name: str) -> Any:
    """Out of the table as the program sees it: it may have written to it."""
    raw = func.__kwdefaults__
    if id(func) in vm.fresh:
        return UNBOUND if raw is None else dict.get(raw, name, UNBOUND)
    source = Attr(vm.heap.source_of(func), "__kwdefaults__")
    if raw is None:
        vm.heap.guard(source, Kind.EQUALS, None)
        return UNBOUND
    table = vm.heap.adopt(raw, source)
    if type(table) in UNREAD:  # of a function that is made anew in each call
        raise unread(table)
    value = dict.get(table, name, UNBOUND)
    if type(value) is Box:
        return value.force()
    if value is UNBOUND:
        if name in raw:  # CPython, which words the error, would find it
            raise Break("SB006", "a call after the program has removed a default of the function")
        vm.heap.guard(source, Kind.ABSENT, name)
    return value
