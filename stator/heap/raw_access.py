"""Make and read objects of any class without running its code.   new_shell(cls), instance_dict(module)

`new_shell(cls)` is None for classes whose instances only C code can make.  Facts about a class are kept until
forget_classes().
"""

from __future__ import annotations

import collections
import contextlib
import functools
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from stator.breaks import Break
from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import dict_of_class, is_a, module_of, mro_of

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
    base: Any  # the container class: its methods serve where `type` has none
    make: Callable[..., Any]


_CONTAINERS: dict[type, ShadowKind] = {
    list: ShadowKind.LIST, dict: ShadowKind.DICT, tuple: ShadowKind.TUPLE, set: ShadowKind.SET,
    frozenset: ShadowKind.SET, collections.deque: ShadowKind.LIST, collections.OrderedDict: ShadowKind.DICT,
    collections.defaultdict: ShadowKind.DICT,
}
Result = TypeVar("Result")
_VALUES: tuple[type, ...] = (int, float, str, bytes, complex)


def cached_by_class(function: Callable[[type], Result]) -> Callable[[type], Result]:
    """Remember the result for each class until forget_classes().  Bounded: a trace may make classes of its own."""
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
        return Shell(ShadowKind.VALUE, solid, solid.__new__)
    return None


def _solid_base(cls: type) -> type | None:
    """The C class whose memory layout instances have; None when it is not one we can allocate."""
    for base in cls.__mro__:
        if not base.__flags__ & _HEAP_TYPE or base in _CONTAINERS or base in _VALUES:
            return base if base in _PLAIN or base in _CONTAINERS or base in _VALUES else None
        # A heap type that owns C methods, which know its memory, is made by C code.
        if module_of(base) in _C_HEAP_MODULES or any(
                type(entry) in _C_METHODS and entry.__objclass__ is base for entry in base.__dict__.values()):
            return None
    return None


def _is_plain(cls: type) -> bool:
    """Whether object.__new__ may make it: a heap class written in C (pybind11's, say) has a `__new__` of its own."""
    found = (base.__dict__["__new__"] for base in cls.__mro__ if "__new__" in base.__dict__)
    return next((each is object.__new__ for each in found if each is object.__new__
                 or type(each) is types.BuiltinFunctionType), True)


_PLAIN = frozenset({object, types.SimpleNamespace})
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_HEAP_TYPE = 1 << 9
_C_HEAP_MODULES = frozenset({"_thread", "_random", "_struct", "_io", "_ssl", "_hashlib", "zlib", "_queue", "select",
                             "_contextvars", "_asyncio", "_csv", "_json", "array", "torch._C"})


@cached_by_class
def slot_members(cls: type) -> tuple[types.MemberDescriptorType, ...]:
    found = []
    for base in cls.__mro__:
        if base.__flags__ & _HEAP_TYPE and "__slots__" in base.__dict__:
            found += [v for v in base.__dict__.values() if type(v) is types.MemberDescriptorType]
    return tuple(found)


def slot_values(value: object, cls: type | None = None) -> dict[types.MemberDescriptorType, Any]:
    found = {}
    for member in slot_members(cls or type(value)):
        with contextlib.suppress(AttributeError):
            found[member] = member.__get__(value)
    return found


def is_constant_tuple(value: Any) -> bool:
    """Whether a tuple is a constant all the way down, so that it can stand for itself."""
    return all((type(item) in CONSTANT_TYPES or type(item) is torch.Size
                or type(item) is tuple and is_constant_tuple(item)) and item == item  # which NaN it is can matter
               for item in value)


def is_member_of_pybind(cls: type) -> bool:
    """Whether instances of a class are members of an enumeration written in C++ (SDPBackend, ReduceOp.RedOpType)."""
    return type(cls).__name__ == "pybind11_type" and "__entries" in dict_of_class(cls)


_GETTERS: dict[type, tuple[tuple[type, ...], Any]] = {}
_RAW: tuple[type, ...] = (list, tuple, set, frozenset, collections.deque)


def instance_dict(value: object) -> dict[str, Any] | None:
    """The real instance dict, past a `__dict__` of the class."""
    getter = _dict_getter(type(value))
    return None if getter is None else getter(value)


def namespace_of(value: object) -> dict[str, Any]:
    own = vars(value) if is_a(value, types.ModuleType) else instance_dict(value)
    assert own is not None
    return own


def set_instance_dict(value: object, namespace: dict[str, Any]) -> None:
    found = next(base.__dict__["__dict__"] for base in mro_of(type(value))
                 if type(base.__dict__.get("__dict__")) is types.GetSetDescriptorType)
    found.__set__(value, namespace)


def _dict_getter(cls: type) -> Any:
    mro = mro_of(cls)
    known = _GETTERS.get(cls)
    if known is not None and known[0] is mro:  # the bases of a class can be assigned
        return known[1]
    if len(_GETTERS) > 4096:  # bounded: a trace may make classes of its own
        _GETTERS.clear()
    getter = None
    for base in mro:
        found = base.__dict__.get("__dict__")
        if type(found) is types.GetSetDescriptorType or base is types.SimpleNamespace:
            getter = found.__get__
            break
    _GETTERS[cls] = (mro, getter)
    return getter


def raw_members(container: object) -> Iterator[Any]:
    """The members of a list, tuple, set, frozenset or deque, past an `__iter__` of its class."""
    base: Any = _container_base(type(container))
    return base.__iter__(container)


def raw_store(container: object, index: int, value: object) -> None:
    """Overwrite an item of a list or deque, past a `__setitem__` of its class."""
    base: Any = _container_base(type(container))
    base.__setitem__(container, index, value)


@cached_by_class
def _container_base(cls: type) -> type:
    return next(base for base in cls.__mro__ if base in _RAW)


def forget_classes() -> None:
    """Drop what was worked out about classes: it holds them, and a class may be as short-lived as its function."""
    _GETTERS.clear()
    for memo in MEMOS:
        memo.cache_clear()


def items_in_order(value: Any) -> Any:
    """An OrderedDict keeps an order of its own beside its table's: `move_to_end` changes only that."""
    if not issubclass(type(value), collections.OrderedDict):
        return dict.items(value)
    held = {id(key): item for key, item in dict.items(value)}
    try:
        order = list(collections.OrderedDict.__iter__(value))
    except KeyError:
        raise Break("SB013", "an OrderedDict that does not find one of its keys again") from None
    if len(order) != len(held) or any(id(key) not in held for key in order):
        raise Break("SB013", "an OrderedDict that was written to as a plain dict")
    return [(key, held[id(key)]) for key in order]
