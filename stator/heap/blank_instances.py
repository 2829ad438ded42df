"""Empty objects of a user's class.   class -> how to make an instance of it without running its code

`new_shell(cls)` answers None for classes whose instances only C code can make: those stay opaque.
"""

from __future__ import annotations

import collections
import functools
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import module_of

CONSTANT_TYPES: frozenset[type] = frozenset({
    int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme,
})

IDENTITY_TYPES: frozenset[type] = frozenset({
    type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType, types.CodeType, property, classmethod, staticmethod, re.Pattern,
    types.GenericAlias, types.UnionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket,
})


@dataclass(frozen=True)
class Shell:
    """How to make an empty stand-in of a class, and which container part it has."""

    shape: ShadowKind
    base: Any  # the container class: it is asked for methods that `type` does not have
    make: Callable[..., Any]
    mutable: bool = True


_CONTAINERS: dict[type, ShadowKind] = {
    list: ShadowKind.LIST, dict: ShadowKind.DICT, tuple: ShadowKind.TUPLE, set: ShadowKind.SET,
    collections.deque: ShadowKind.LIST, collections.OrderedDict: ShadowKind.DICT,
    collections.defaultdict: ShadowKind.DICT,
}
Result = TypeVar("Result")
_VALUES: tuple[type, ...] = (int, float, str, bytes, complex)


def cached_by_class(function: Callable[[type], Result]) -> Callable[[type], Result]:
    """Remember the answer for each class until forget_classes().  Bounded: a trace may make classes of its own."""
    MEMOS.append(memo := functools.lru_cache(4096)(function))
    return memo


MEMOS: list[functools._lru_cache_wrapper[Any]] = []


@cached_by_class
def new_shell(cls: type) -> Shell | None:
    solid = _solid_base(cls)
    if solid is types.SimpleNamespace:  # a C type whose state is its __dict__ alone
        return Shell(ShadowKind.OBJECT, solid, solid.__new__)
    if solid is object:
        return Shell(ShadowKind.OBJECT, object, object.__new__) if _is_plain(cls) else None
    if solid in _CONTAINERS:
        return Shell(_CONTAINERS[solid], solid, solid.__new__)
    if solid in _VALUES and cls is not solid:
        return Shell(ShadowKind.VALUE, solid, solid.__new__, mutable=False)
    return None


def _solid_base(cls: type) -> type | None:
    """The C class whose memory layout instances have; None when it is not one we can allocate."""
    for base in cls.__mro__:
        if not base.__flags__ & _HEAP_TYPE or base in _CONTAINERS or base in _VALUES:
            return base if base in _PLAIN or base in _CONTAINERS or base in _VALUES else None
        if module_of(base) in _C_HEAP_MODULES or _has_c_methods(base):
            return None
    return None


def _is_plain(cls: type) -> bool:
    """Whether object.__new__ may make it: a heap class written in C (pybind11's, say) has a `__new__` of its own."""
    for base in cls.__mro__:
        found = base.__dict__.get("__new__")
        if found is object.__new__:
            return True
        if type(found) is types.BuiltinFunctionType:
            return False
    return True


def _has_c_methods(cls: type) -> bool:
    """Whether C code made this heap type: it owns C methods, which know its memory."""
    return any(type(entry) in _C_METHODS and entry.__objclass__ is cls for entry in cls.__dict__.values())


_PLAIN = frozenset({object, types.SimpleNamespace})
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_HEAP_TYPE = 1 << 9
_C_HEAP_MODULES = frozenset({"_thread", "_random", "_struct", "_io", "_ssl", "_hashlib", "zlib", "_queue", "select",
                             "_contextvars", "_asyncio", "_csv", "_json", "array", "torch._C"})


@cached_by_class
def slot_members(cls: type) -> tuple[types.MemberDescriptorType, ...]:
    """The `__slots__` descriptors of a class and its bases."""
    found = []
    for base in cls.__mro__:
        if base.__flags__ & _HEAP_TYPE and "__slots__" in base.__dict__:
            found += [v for v in base.__dict__.values() if type(v) is types.MemberDescriptorType]
    return tuple(found)


def is_constant_tuple(value: Any) -> bool:
    """Whether a tuple is a constant all the way down, so that it can stand for itself."""
    for item in value:
        cls = type(item)
        if cls not in CONSTANT_TYPES and not (cls is tuple and is_constant_tuple(item)) and cls is not torch.Size:
            return False
        if item != item:  # which NaN it is can matter
            return False
    return True


def is_member_of_pybind(cls: type) -> bool:
    """Whether instances of a class are members of an enumeration written in C++ (SDPBackend, ReduceOp.RedOpType)."""
    return type(cls).__name__ == "pybind11_type" and "__entries" in type.__dict__["__dict__"].__get__(cls)
