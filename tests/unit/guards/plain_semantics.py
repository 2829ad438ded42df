"""The meaning of sources and guards in plain Python, against which the guard program of C++ is tested.

In: a source, a guard or a relation, and the bound arguments of a call.   Key(DictOf(Local("self", 0)), "n"), (m,)
Out: the value (`evaluate`), or whether the fact holds (`check`, `relation_holds`).

Like C++ it reads raw: dict slots, tuple items and cells, never the user's methods.
"""

from __future__ import annotations

import math
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator.guards.global_state import global_state
from stator.guards.guard import Guard, Kind, is_constant, same_constant
from stator.guards.guard_semantics import TRUSTED_TYPES, Unreadable, raw_length, type_attribute, type_field
from stator.guards.lower import member_descriptor
from stator.guards.partition import NoAddress, Partition, partition
from stator.guards.shape_check import Code, ShapeCheck
from stator.guards.tensor_meta import TensorMeta, tensor_meta, tensor_values
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
)

TENSOR_ATTRIBUTES = frozenset({"grad", "_base"})


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
    return _step(source, evaluate(source.base, bound_args))


def check(guard: Guard, bound_args: Sequence[Any]) -> bool:
    """Whether the fact holds for these arguments."""
    if guard.kind is Kind.GLOBAL_STATE:
        return bool(guard.value == global_state())
    try:
        value = evaluate(guard.source, bound_args)
        if guard.kind is Kind.SHAPE:
            return relation_holds(guard.value, [evaluate(each.source, bound_args) for each in guard.value.operands])
        if guard.kind is Kind.PARTITION:
            return partition_holds(guard.value, [evaluate(place.source, bound_args) for place in guard.value.places])
        if guard.kind in (Kind.ALIAS, Kind.NOT_ALIAS):
            other = evaluate(guard.value, bound_args)
            return (value is other) is (guard.kind is Kind.ALIAS)
        return bool(_MEANINGS[guard.kind](value, guard.value))
    except Unreadable:
        return False


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
    """A raw dict lookup; only exact constants are compared by `==`."""
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


# ---------------------------------------------------------------------- relations


def partition_holds(held: Partition, values: Sequence[Any]) -> bool:
    """Whether the values at the places share addresses as they did."""
    try:
        now = partition(held.places, values)
    except NoAddress:
        return False
    return now.groups == held.groups and now.begins == held.begins


def relation_holds(relation: ShapeCheck, values: Sequence[Any]) -> bool:
    """Whether a relation is true of the values at the sources of its operands."""
    numbers = [operand.of(value) for operand, value in zip(relation.operands, values, strict=True)]
    stack: list[Any] = []
    for op, argument in relation.code:
        if op == Code.LOAD:
            stack.append(numbers[argument])
        elif op == Code.CONSTANT:
            stack.append(relation.constants[argument])
        else:
            count = 3 if op == Code.CHOOSE else argument
            taken = stack[-count:]
            del stack[-count:]
            stack.append(None if None in taken else _apply(Code(op), taken))
        if stack[-1] is None:
            return False
    return bool(stack[-1])


def _apply(op: Code, values: list[Any]) -> Any:
    if op is Code.CHOOSE:
        return values[1] if values[0] else values[2]
    if len(values) == 1:
        return _UNARY.get(op, lambda value: value)(values[0])
    result = values[0]
    for value in values[1:]:
        result = _BINARY[op](result, value)
        if result is None or type(result) is int and not -(1 << 63) <= result < 1 << 63:
            return None
    return int(result) if type(result) is bool else result


def _divided(divide: Callable[[int, int], int]) -> Callable[[Any, Any], int | None]:
    return lambda left, right: None if type(left) is float or type(right) is float or not right else divide(left, right)


_UNARY: dict[Code, Callable[[Any], Any]] = {
    Code.NEGATE: lambda value: int(not value), Code.TO_FLOAT: float, Code.TRUNC: math.trunc, Code.FLOOR: math.floor,
    Code.CEIL: math.ceil, Code.ROUND: round, Code.SQUARE_ROOT: lambda value: math.sqrt(value) if value >= 0 else None,
    Code.ABSOLUTE: lambda value: abs(value) if value != -(1 << 63) else None,
}
_BINARY: dict[Code, Callable[[Any, Any], Any]] = {
    Code.ADD: operator.add, Code.MUL: operator.mul, Code.MIN: lambda a, b: a if a <= b else b,
    Code.MAX: lambda a, b: a if a >= b else b, Code.ALL: lambda a, b: int(bool(a) and bool(b)),
    Code.ANY: lambda a, b: int(bool(a) or bool(b)), Code.TRUE_DIV: lambda a, b: a / b if b else None,
    Code.POW: lambda a, b: a**b if type(a) is float or type(b) is float or b >= 0 else None,
    Code.FLOOR_DIV: _divided(operator.floordiv), Code.MOD: _divided(operator.mod), Code.EQ: operator.eq,
    Code.NE: operator.ne, Code.LT: operator.lt, Code.LE: operator.le, Code.GT: operator.gt, Code.GE: operator.ge,
}
