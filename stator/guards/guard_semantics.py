"""Evaluate sources, and check and explain guards, in plain Python.

In: a source or a guard, and the bound arguments of a call.   Key(DictOf(Local("self", 0)), "n"), (m,)
Out: the value (`evaluate`), whether the fact holds (`check`), or the old and the new value (`explain`).

This is the specification that the C++ guard program is tested against, and the slow path that explains
a failure.  Like C++ it reads raw: dict slots, tuple items and cells, never the user's methods.
"""

from __future__ import annotations

import functools
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stator.guards.global_state import GlobalState, global_state
from stator.guards.guard import MISSING, TORCH_CONSTANTS, Guard, Kind, Where, is_constant, same_constant
from stator.guards.lower import member_descriptor
from stator.guards.partition import NoAddress, Partition
from stator.guards.shape_check import ShapeCheck
from stator.guards.tensor_meta import TensorMeta, TensorValues, tensor_meta, tensor_values
from stator.host.suspended_patches import names_of_class, names_of_module
from stator.host.value_kinds import mro_of
from stator.source import (
    Attr,
    CallOf,
    CellOf,
    DictOf,
    Index,
    Key,
    KeyAt,
    Local,
    Pinned,
    SetAt,
    Slot,
    Source,
    TypeOf,
    ValueAt,
    is_a,
    name_of,
)

# Attr reads C-level attributes of exactly these types; torch tensors answer `grad` and `_base` besides.
TRUSTED_TYPES: frozenset[type] = frozenset({
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.CodeType, types.CellType,
    types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias, types.UnionType, functools.partial,
    property, staticmethod, classmethod, super, slice, range, complex, int, float, deque, memoryview})
TENSOR_ATTRIBUTES = frozenset({"grad", "_base"})


class Unreadable(LookupError):
    """The source leads nowhere for these arguments: a missing key, another type on the way."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a guard does not hold: the fact, what is there now, and the user's line that relied on it."""

    text: str
    expected: str
    found: str
    where: Where | None

    def __str__(self) -> str:
        line = f" ({self.where[2]} at {self.where[0]}:{self.where[1]})" if self.where else ""
        return f"{self.text}; now {self.found}{line}"


def evaluate(source: Source, bound_args: Sequence[Any]) -> Any:
    """The value a source leads to; Unreadable when it leads nowhere."""
    match source:
        case Local(index=index):
            if index >= len(bound_args):
                raise Unreadable(source.text())
            return bound_args[index]
        case Pinned(obj=obj):
            return obj
        case CallOf(fn=fn, args=args):
            arguments = [evaluate(arg, bound_args) for arg in args]
            try:
                return fn.obj(*arguments)
            except Exception as error:
                raise Unreadable(source.text()) from error
    assert source.base is not None, source
    return _step(source, _named(evaluate(source.base, bound_args)))


def _named(value: object) -> object:
    """A dict of names as the program has them, though its patches are taken off."""
    return names_of_module(value) if type(value) is dict else value


def check(guard: Guard, bound_args: Sequence[Any]) -> bool:
    """Whether the fact holds for these arguments."""
    if guard.kind is Kind.GLOBAL_STATE:
        return bool(guard.value == global_state())
    try:
        value = evaluate(guard.source, bound_args)
        if guard.kind is Kind.SHAPE:
            return guard.value.holds([evaluate(operand.source, bound_args) for operand in guard.value.operands])
        if guard.kind is Kind.PARTITION:
            return guard.value.holds([evaluate(place.source, bound_args) for place in guard.value.places])
        if guard.kind in (Kind.ALIAS, Kind.NOT_ALIAS):
            other = evaluate(guard.value, bound_args)
            return (value is other) is (guard.kind is Kind.ALIAS)
        return bool(_MEANINGS[guard.kind](value if guard.kind is Kind.ID else _named(value), guard.value))
    except Unreadable:
        return False


def explain(guard: Guard, bound_args: Sequence[Any]) -> Failure | None:
    """None when the guard holds; else the old value and the new one, as text."""
    if check(guard, bound_args):
        return None
    if guard.kind is Kind.GLOBAL_STATE:
        changed = guard.value.differences(global_state())
        # Stator itself turns functions off while it looks.
        changed = [each for each in changed if each[0] != "torch_function_disabled"] or changed
        expected = ", ".join(f"{name}={old}" for name, old, _ in changed)
        return Failure(guard.text(), expected, ", ".join(f"{n}={new}" for n, _, new in changed), guard.where)
    text = guard.text()
    try:
        if guard.kind is Kind.PARTITION:
            text, found = _changed_relation(guard, bound_args)
        else:
            found = _describe(guard, evaluate(guard.source, bound_args), bound_args)
    except Unreadable as gone:
        found = f"{gone} cannot be read"
    return Failure(text, _expected_text(guard), found, guard.where)


def _changed_relation(guard: Guard, bound_args: Sequence[Any]) -> tuple[str, str]:
    """Two places that shared an address, or did not, and how they are now."""
    values = [evaluate(place.source, bound_args) for place in guard.value.places]
    try:
        return guard.value.difference(values) or (guard.text(), "otherwise")
    except NoAddress as error:
        return guard.text(), str(error)


def _step(source: Source, base: object) -> Any:
    """One raw read."""
    match source:
        case DictOf():
            return instance_dict(base, source)
        case Key(key=key):
            return _lookup(base, key, source)
        case KeyAt(index=index):
            return _item(_dict_items(base, source), index, source)[0]
        case ValueAt(index=index):
            return _item(_dict_items(base, source), index, source)[1]
        case Index(index=index):
            return _item(_members(base, (list, tuple, deque), source), index, source)
        case SetAt(index=index):
            return _item(_members(base, (set, frozenset), source), index, source)
        case Slot(name=name, owner=owner):
            return _slot(base, name, owner, source)
        case Attr(name=name):
            return _attribute(base, name, source)
        case CellOf() if type(base) is types.CellType and base != types.CellType():
            return base.cell_contents
        case CellOf():
            raise Unreadable(source.text())
        case TypeOf():
            return type(base)
    raise TypeError(f"no meaning for {type(source).__name__}")


def instance_dict(obj: Any, source: Source) -> Any:
    """The dict of an instance, found without looking at a `__dict__` the class may have defined."""
    if is_a(obj, type):
        return type.__dict__["__dict__"].__get__(obj)
    for owner in type(obj).__mro__:
        getter = type.__dict__["__dict__"].__get__(owner).get("__dict__")
        if type(getter) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return getter.__get__(obj)
    raise Unreadable(source.text())


def _lookup(base: object, key: object, source: Source) -> Any:
    """A raw dict lookup; `==` is asked of exact constants alone."""
    for own, value in _dict_items(base, source, in_storage_order=True):
        if own is key or (is_constant(own) and is_constant(key) and own == key):
            return value
    raise Unreadable(source.text())


def _dict_items(base: Any, source: Source, in_storage_order: bool = False) -> list[tuple[Any, Any]]:
    if is_a(base, types.MappingProxyType):
        return list(base.items())
    if is_a(base, OrderedDict) and not in_storage_order:
        by_id = {id(key): value for key, value in dict.items(base)}
        return [(key, by_id[id(key)]) for key in OrderedDict.__iter__(base)]
    if is_a(base, dict):
        return list(dict.items(base))
    raise Unreadable(source.text())


def _members(base: Any, kinds: tuple[Any, ...], source: Source) -> list[Any]:
    for kind in kinds:
        if is_a(base, kind):
            return list(kind.__iter__(base))
    raise Unreadable(source.text())


def _item(items: Sequence[Any], index: int, source: Source) -> Any:
    if not 0 <= index < len(items):
        raise Unreadable(source.text())
    return items[index]


def _slot(base: object, name: str, owner: type, source: Source) -> Any:
    if not is_a(base, owner):
        raise Unreadable(source.text())
    try:
        return member_descriptor(owner, name).__get__(base)
    except (AttributeError, ValueError) as empty:  # or the class has something else there by now
        raise Unreadable(source.text()) from empty


def _attribute(base: object, name: str, source: Source) -> Any:
    if is_a(base, torch.Tensor) and name in TENSOR_ATTRIBUTES:
        with torch._C.DisableTorchFunction():
            return getattr(torch._C.TensorBase, name).__get__(base)
    if type(base) in TRUSTED_TYPES:
        for owner in type(base).__mro__:
            getter = vars(owner).get(name)
            if getter is not None and type(getter) in (types.GetSetDescriptorType, types.MemberDescriptorType):
                try:
                    return getter.__get__(base)
                except (AttributeError, ValueError) as empty:
                    raise Unreadable(source.text()) from empty
    raise Unreadable(source.text())


def _tensor_matches(value: object, expected: TensorMeta) -> bool:
    if type(value) is not expected.type:
        return False
    found = tensor_meta(value, with_offset=expected.storage_offset is not None)
    fixed = ("dtype", "device", "layout", "requires_grad", "dispatch_keys", "storage_offset")
    if any(getattr(found, name) != getattr(expected, name) for name in fixed):
        return False
    return _extents_match(found.sizes, expected.sizes) and (
        expected.strides is None or found.strides is not None and _extents_match(found.strides, expected.strides))


def _extents_match(found: tuple[int | None, ...], expected: tuple[int | None, ...]) -> bool:
    return len(found) == len(expected) and all(want in (None, have) for have, want in zip(found, expected, strict=True))


def raw_length(value: Any) -> int | None:
    """The length as C has it, without the user's `__len__`; None for what has none."""
    for kind in (list, tuple, dict, set, frozenset, deque):
        if is_a(value, kind):
            return kind.__len__(value)
    return None


def _same_keys(value: object, expected: tuple[Any, ...]) -> bool:
    if not is_a(value, (dict, types.MappingProxyType)):
        return False
    keys = [key for key, _ in _dict_items(value, Pinned(value))]
    return len(keys) == len(expected) and all(map(same_constant, keys, expected))


def _has_key(value: object, key: object) -> bool | None:
    if not is_a(value, (dict, types.MappingProxyType)):
        return None
    try:
        _lookup(value, key, Pinned(value))
    except Unreadable:
        return False
    return True


def type_attribute(cls: type, name: str) -> Any:
    """Entry of a name in the MRO, as `_PyType_Lookup` finds it, or MISSING."""
    for owner in mro_of(cls):
        own = names_of_class(owner)
        if name in own:
            return own[name]
    return MISSING


def type_field(cls: type, name: str) -> Any:
    """Field of a class (`__mro__`, `__bases__`, its names), past what its metaclass defines."""
    return type.__dict__[name].__get__(cls) if is_a(cls, type) else MISSING


def _slot_is_empty(value: object, name: str, owner: type) -> bool:
    if not is_a(value, owner):
        return False
    try:
        member_descriptor(owner, name).__get__(value)
    except AttributeError:
        return True
    return False


def _same_set(value: object, expected: frozenset[Any]) -> bool:
    if not is_a(value, (set, frozenset)):
        return False
    elements = _members(value, (set, frozenset), Pinned(value))
    return len(elements) == len(expected) and all(
        any(same_constant(element, want) for want in expected) for element in elements)


_MEANINGS: dict[Kind, Callable[[Any, Any], bool | None]] = {
    Kind.TYPE: lambda value, expected: type(value) is expected, Kind.ID: operator.is_, Kind.NOT_ID: operator.is_not,
    Kind.EQUALS: same_constant, Kind.FRESH_CALL: same_constant, Kind.TENSOR: _tensor_matches,
    Kind.VALUES: lambda value, expected: is_a(value, torch.Tensor) and tensor_values(value) == expected,
    Kind.LEN: lambda value, expected: raw_length(value) == expected, Kind.KEYS: _same_keys,
    Kind.ABSENT: lambda value, key: _has_key(value, key) is False, Kind.PRESENT: _has_key,
    Kind.TYPE_ATTR: lambda value, expected: type_attribute(value, expected[0]) is expected[1],
    Kind.TYPE_FIELD: lambda value, expected: same_constant(type_field(value, expected[0]), expected[1]),
    Kind.CELL_EMPTY: lambda value, _: type(value) is types.CellType and value == types.CellType(),
    Kind.SLOT_EMPTY: lambda value, expected: _slot_is_empty(value, *expected), Kind.SET_EQUALS: _same_set,
}


def _expected_text(guard: Guard) -> str:
    value = guard.value
    if is_a(value, (TensorMeta, TensorValues, GlobalState, Source, ShapeCheck, Partition)):
        return value.text()
    return _shown(value)


def _shown(value: Any) -> str:
    return repr(value) if type(value) in TORCH_CONSTANTS else name_of(value)


def _describe(guard: Guard, value: Any, bound_args: Sequence[Any]) -> str:
    """The value that is there now, in the terms of the kind of guard that failed."""
    match guard.kind:
        case Kind.TYPE:
            return f"type {name_of(type(value))}"
        case Kind.TENSOR if is_a(value, torch.Tensor):
            return tensor_meta(value).text()
        case Kind.VALUES if is_a(value, torch.Tensor):
            return tensor_values(value).text()
        case Kind.LEN:
            return f"length {raw_length(value)}"
        case Kind.KEYS if is_a(value, dict):
            return f"keys [{', '.join(name_of(key) for key, _ in _dict_items(value, guard.source))}]"
        case Kind.TYPE_ATTR:
            return name_of(type_attribute(value, guard.value[0]))
        case Kind.TYPE_FIELD:
            return name_of(type_field(value, guard.value[0]))
        case Kind.SET_EQUALS if is_a(value, (set, frozenset)):
            return "{" + ", ".join(sorted(map(name_of, _members(value, (set, frozenset), guard.source)))) + "}"
        case Kind.ABSENT:
            return "present"
        case Kind.PRESENT:
            return "absent"
        case Kind.SHAPE:
            found = [(o.text(), o.of(evaluate(o.source, bound_args))) for o in guard.value.operands]
            return ", ".join(f"{text} is {number}" for text, number in found)
        case Kind.ALIAS:
            return "two objects"
        case Kind.NOT_ALIAS:
            return "one object"
    return _shown(value)
