"""Prove that Python functions depend on their arguments alone.   kernels of demo::scale  ->  repeatable

Their code names functions of torch, pure C functions and code like itself, and assigns nothing but locals and
attributes of the context of autograd.  A vocabulary adds functions.  Code objects are read and never run.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload, OpOverloadPacket

from stator.graph.analysis.mutation import PURE_KERNELS, qualified_name
from stator.heap.reached_state import effects_undone, is_of_library, kernels_of
from stator.native.rows_declare import NativeClass
from stator.native.table import lookup
from stator.native.torch_ops import draws_random_numbers, torch_leaf

_RECEIVERS = (torch.Tensor, list, tuple, dict, set, str, int, float, torch.Size, torch.dtype, torch.device)
_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_PURE = (NativeClass.PURE_SHELL, NativeClass.PURE, NativeClass.PURE_DEEP, NativeClass.MUTATES, NativeClass.ITERATOR)
_OPERATORS = (OpOverload, OpOverloadPacket)


@dataclass(frozen=True)
class Vocabulary:
    """Classes of values that a function may meet, and what it may name besides pure functions."""

    receivers: tuple[type, ...] = _RECEIVERS
    allows: Callable[[object], bool] = lambda value: False
    closed: bool = False  # no other class is met: other members raise


_KERNELS = Vocabulary()
_READERS: tuple[object, ...] = (torch.Tensor.tolist, torch._C.TensorBase.requires_grad)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
_ASSIGNS = ("IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "DELETE_ATTR", "STORE_NAME", "LOAD_NAME")


def watched_kernel(target: object) -> AbstractContextManager[None]:
    """Around the first call of an operator on fakes: note it where its kernels and formulas for autograd are pure."""
    if _has_pure_kernels(target, set()):
        PURE_KERNELS.add(target)
    return effects_undone(target)


def _has_pure_kernels(target: object, seen: set[int]) -> bool:
    definition = OPDEFS.get(qualified_name(target)) if isinstance(target, _OPERATORS) else None
    if definition is None or definition._opoverload._schema.is_mutable:
        return False
    formulas = definition._setup_context_fn, definition._backward_fn
    return all(_is_pure_function(kernel, seen, kernel in formulas) for kernel in kernels_of(target))


def _is_pure_function(fn: object, seen: set[int], has_context: bool = False, words: Vocabulary = _KERNELS) -> bool:
    if not isinstance(fn, types.FunctionType) or id(fn) in seen:
        return isinstance(fn, types.FunctionType)
    seen.add(id(fn))
    held = [cell.cell_contents for cell in fn.__closure__ or () if cell != types.CellType()]
    if is_of_library(fn.__globals__.get("__name__")):  # a wrapper of torch around a kernel
        return all(_is_pure_function(each, seen, words=words) for each in held if type(each) is types.FunctionType)
    return not held and not fn.__defaults__ and not fn.__kwdefaults__ and is_pure_code(
        fn.__code__, fn.__globals__, seen, fn.__code__.co_varnames[0] if has_context else "", words)


def is_pure_code(code: types.CodeType, names: dict[str, Any], seen: set[int], context: str = "",
                 words: Vocabulary = _KERNELS) -> bool:
    held: object = _RECEIVERS  # the value whose attribute may follow; here: one computed from the arguments
    for each in dis.get_instructions(code):
        if each.opname in _ASSIGNS:
            return False
        if each.opname == "LOAD_GLOBAL":
            builtins = names["__builtins__"]
            held = names.get(each.argval, (builtins if type(builtins) is dict else vars(builtins)).get(each.argval))
        elif each.opname in _ATTRIBUTES and isinstance(held, types.ModuleType):
            held = vars(held).get(each.argval)
        elif each.opname in _ATTRIBUTES and held is not context:
            if each.opname == "STORE_ATTR" or held is not _RECEIVERS or not _is_pure_member(each.argval, words):
                return False
        else:
            loaded = each.argval if type(each.argval) is tuple else (each.argval,)
            held = context if context and "LOAD_FAST" in each.opname and loaded[-1] == context else _RECEIVERS
        if held is not _RECEIVERS and held is not context and not _is_pure_value(held, seen, words):
            return False
    return all(is_pure_code(inner, names, seen, "", words) for inner in code.co_consts if type(inner) is types.CodeType)


def _is_pure_member(name: str, words: Vocabulary) -> bool:
    """Whether an attribute of this name is pure, whichever kind of argument has it."""
    members = [inspect.getattr_static(cls, name) for cls in words.receivers if hasattr(cls, name)]
    return (bool(members) or words.closed and not name.startswith("_")) and all(
        _is_pure_value(member, set(), words) for member in members)


def _is_pure_value(value: object, seen: set[int], words: Vocabulary) -> bool:
    if words.allows(value):
        return True
    if isinstance(value, _OPERATORS):  # in the formula of another one
        return _has_pure_kernels(value, seen)
    if torch_leaf(value):
        return not draws_random_numbers(value)
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in ("torch", "math")
    if isinstance(value, _VALUES) or any(value is each for each in _READERS):
        return True
    if isinstance(value, types.FunctionType):
        return not is_of_library(value.__globals__.get("__name__")) and _is_pure_function(value, seen, words=words)
    row = lookup(value)
    return row is not None and row.cls in _PURE or isinstance(value, type) and issubclass(value, Exception) \
        and value.__module__ == "builtins"
