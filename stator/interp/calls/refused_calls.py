"""Refuse calls before their arguments are read.   a callable  ->  nothing, or a Break that left everything untouched"""

from __future__ import annotations

import types
from typing import Any

from stator.breaks import Break
from stator.interp.calls.marked_functions import is_marked, refuse_disabled
from stator.interp.iteration import polyfills
from stator.interp.rule_registry import RULES
from stator.native.table import NativeClass, Row, lookup, name_of, receiver_split
from stator.native.torch_ops import torch_leaf

C_CALLABLES = {types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
               types.MethodWrapperType, types.ClassMethodDescriptorType}
_RUNNABLE = {NativeClass.PURE_SHELL, NativeClass.PURE, NativeClass.PURE_DEEP, NativeClass.MUTATES, NativeClass.ITERATOR}
_NEEDS_RULE = {NativeClass.SPECIAL, NativeClass.WRAPPER, NativeClass.OUTSIDE_REF}


def describe_callable(fn: Any) -> str:
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or repr(fn)
    return f"{module}.{name}" if module else f"{name}"


def refuse_row(fn: object, row: Row | None) -> None:
    """Break at a C callable without a row, or with one that does not let it run."""
    if row is None:
        raise Break("SB001", f"{describe_callable(fn)} is not in the native table", untouched=True)
    if row.cls in _RUNNABLE:
        return
    if row.cls in _NEEDS_RULE:
        raise Break("SB001", f"{name_of(row)} needs a rule of the interpreter that does not exist yet", untouched=True)
    raise Break(row.code or "SB001", f"{name_of(row)}: {row.why}" if row.why else name_of(row), untouched=True)


def refuse_unlisted(fn: Any) -> None:
    """Break at a callable that is refused whatever its arguments are."""
    if type(fn) is types.MethodType:
        fn = fn.__func__
    if type(fn) is types.FunctionType:
        if is_marked(fn) and id(fn) not in RULES:
            refuse_disabled(fn)
    elif type(fn) in C_CALLABLES:
        descriptor = receiver_split(fn)[0]
        if id(descriptor) not in RULES and id(fn) not in RULES and not torch_leaf(descriptor) and not torch_leaf(fn) \
                and not is_marked(fn) and lookup(fn) is None and polyfills.plan(descriptor, (), None) is None:
            refuse_row(fn, None)
