"""A guard, as plain data: a source, a kind of check, the expected value, and the user's line behind it.

    `self.n` was 3, read at model.py:12  ->  Guard(self.n, EQUALS, 3, ("model.py", 12, "forward"))
"""

from __future__ import annotations

import enum
import struct
from typing import Any, TypeAlias

import torch

from stator.guards.global_state import GlobalState, global_state
from stator.guards.partition import Partition
from stator.guards.tensor_meta import TensorMeta, TensorValues, tensor_meta, tensor_values
from stator.host.value_kinds import is_a
from stator.source import DictOf, Pinned, Source, name_of

__all__ = ["MISSING", "GlobalState", "Guard", "Kind", "TensorMeta", "TensorValues", "Where", "global_state",
           "is_constant", "same_constant", "tensor_meta", "tensor_values", "value_key"]

Where: TypeAlias = "tuple[str, int, str]"


class Kind(enum.IntEnum):
    """The check that a guard makes on the value of its source."""

    TYPE = 0  # type(x) is value
    ID = 1  # x is value
    EQUALS = 2  # exactly this type, and equal (floats bit by bit)
    TENSOR = 3  # value: TensorMeta
    LEN = 4  # raw length of a list, tuple, dict, set, frozenset or deque
    KEYS = 5  # value: the keys of a dict in order, constants by equality, objects by identity
    ABSENT = 6  # value: a key that the dict does not have
    PRESENT = 7  # value: a key that the dict has
    TYPE_ATTR = 8  # source: Pinned(cls); value: (name, what the MRO holds under it, or MISSING)
    ALIAS = 9  # value: another Source of the same object
    NOT_ALIAS = 10  # value: a Source of another object
    NOT_ID = 11  # x is not value
    CELL_EMPTY = 12  # source: the cell
    SLOT_EMPTY = 13  # source: the object; value: (name, owner)
    GLOBAL_STATE = 14  # source: WORLD; value: GlobalState
    FRESH_CALL = 15  # source: CallOf; its answer equals value
    SET_EQUALS = 16  # value: frozenset; constants by equality, objects by identity
    SHAPE = 17  # value: ShapeCheck, whose first operand is read at the source
    VALUES = 18  # value: TensorValues, the contents of a tensor whose metadata a TENSOR guard of the source fixes

    TYPE_FIELD = 19  # source: Pinned(cls); value: (`__mro__`, `__bases__`, `__name__` or `__qualname__`, what it holds)
    PARTITION = 20  # value: Partition, whose first place is the source

    __hash__ = int.__hash__  # Enum's own is written in Python


class Missing:
    """The type of MISSING: no class in the MRO defines the name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class _Fields:
    """A guard in the making: its fields can still be set."""

    __slots__ = ("source", "kind", "value", "where", "key")

    source: Source
    kind: Kind
    value: Any
    where: Where | None
    key: tuple[Source, int, object]


class Guard(_Fields):
    """One fact.  Guards of one `key` have the same source, kind and value; `where` is only for people."""

    __slots__ = ()

    def __new__(cls, source: Source, kind: Kind, value: object = None, where: Where | None = None) -> Guard:
        number = kind._value_
        if number in _BY_IDENTITY:
            key: object = id(value)
        else:
            key = (value[0], id(value[1])) if number == _TYPE_ATTR else value_key(value)  # type: ignore[index]
        return _made(source, kind, value, where, (source, number, key))

    def moved(self, source: Source, value: object) -> Guard:
        """The same fact of another place; `value` differs only where it is a source."""
        if value is not self.value:
            return Guard(source, self.kind, value, self.where)
        return _made(source, self.kind, value, self.where, (source, self.key[1], self.key[2]))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Guard is frozen")

    def __repr__(self) -> str:
        return f"<Guard {self.text()}>"

    def text(self) -> str:
        """The fact in the user's terms: `self.n == 3`."""
        return _TEXTS[self.kind](self.source, self.value)


def _made(source: Source, kind: Kind, value: object, where: Where | None, key: tuple[Source, int, object]) -> Guard:
    made = _Fields()  # capture makes thousands: setting the fields of a frozen class would cost several times as much
    made.source = source
    made.kind = kind
    made.value = value
    made.where = where
    made.key = key
    made.__class__ = Guard
    return made  # type: ignore[return-value]


# Types whose values are compared by exact type and value; everything else is compared by identity.
SCALARS = frozenset({int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented)})
TORCH_CONSTANTS = frozenset({torch.dtype, torch.layout, torch.memory_format, torch.device, torch.qscheme})
COMPOUNDS = frozenset({tuple, frozenset, range, slice, torch.Size})
_FACTS = frozenset({TensorMeta, TensorValues, GlobalState, Partition})
_BY_IDENTITY = frozenset({Kind.TYPE.value, Kind.ID.value, Kind.NOT_ID.value})
_TYPE_ATTR = Kind.TYPE_ATTR.value


def is_constant(value: object) -> bool:
    """Whether EQUALS can compare it: an immutable builtin, or a compound of such."""
    kind = type(value)
    if kind in SCALARS or kind in TORCH_CONSTANTS or kind is range:
        return True
    if kind is slice:
        return all(map(is_constant, (value.start, value.stop, value.step)))  # type: ignore[attr-defined]
    return kind in COMPOUNDS and all(map(is_constant, value))  # type: ignore[call-overload]


def value_key(value: Any) -> object:
    """A hashable key: equal for values that guard the same.  1, True and 1.0 differ; so do 0.0 and -0.0."""
    kind = type(value)
    if kind is str:
        return value  # no other key is a str
    if kind is int or kind is bool or kind is bytes or value is None:
        return (kind, value)
    if kind is float:
        return (kind, struct.pack("d", value))
    if kind is complex:
        return (kind, struct.pack("dd", value.real, value.imag))
    if kind is tuple or kind is torch.Size:
        return (kind, tuple([value_key(item) for item in value]))
    if kind is frozenset:
        return (kind, frozenset(value_key(item) for item in value))
    if kind is range or kind is slice:
        return (kind, value_key(value.start), value_key(value.stop), value_key(value.step))
    if kind in TORCH_CONSTANTS or kind in _FACTS or is_a(value, Source):
        return (kind, value)
    return (kind, id(value))


def same_constant(left: object, right: object) -> bool:
    """Exact type and equal value, floats bit by bit; objects that are no constants by identity."""
    return left is right or (type(left) is type(right) and value_key(left) == value_key(right))


def _type_attr_text(source: Source, value: tuple[str, object]) -> str:
    name, expected = value
    owner = source.text()
    return f"{owner} has no {name!r}" if expected is MISSING else f"{owner}.{name} is {name_of(expected)}"


def _member_text(source: Source, key: object, word: str) -> str:
    if isinstance(source, DictOf):
        return f"{name_of(key)} {word} vars({source.base.text()})"
    return f"{name_of(key)} {word} {'globals()' if isinstance(source, Pinned) else source.text()}"


def _equals_text(source: Source, value: object) -> str:
    if value is None or value is True or value is False or value is ...:
        return f"{source.text()} is {value}"
    shown = str(value) if type(value) in TORCH_CONSTANTS or type(value) is torch.Size else name_of(value)
    if type(value) is frozenset:
        shown = _set_text(value)
    return f"{source.text()} == {shown}"


def _set_text(value: frozenset[object]) -> str:
    return "{" + ", ".join(sorted(map(name_of, value))) + "}"


_TEXTS: dict[Kind, Any] = {
    Kind.TYPE: lambda s, v: f"type({s.text()}) is {name_of(v)}", Kind.ID: lambda s, v: f"{s.text()} is {name_of(v)}",
    Kind.EQUALS: _equals_text, Kind.TENSOR: lambda s, v: f"tensor {s.text()}: {v.text()}",
    Kind.LEN: lambda s, v: f"len({s.text()}) == {v}",
    Kind.KEYS: lambda s, v: f"list({s.text()}) == [{', '.join(map(name_of, v))}]",
    Kind.ABSENT: lambda s, v: _member_text(s, v, "not in"), Kind.PRESENT: lambda s, v: _member_text(s, v, "in"),
    Kind.TYPE_ATTR: _type_attr_text, Kind.ALIAS: lambda s, v: f"{s.text()} is {v.text()}",
    Kind.NOT_ALIAS: lambda s, v: f"{s.text()} is not {v.text()}",
    Kind.NOT_ID: lambda s, v: f"{s.text()} is not {name_of(v)}",
    Kind.CELL_EMPTY: lambda s, v: f"{s.text()} is an empty cell",
    Kind.SLOT_EMPTY: lambda s, v: f"{s.text()} has no {v[0]!r}", Kind.GLOBAL_STATE: lambda s, v: v.text(),
    Kind.FRESH_CALL: _equals_text, Kind.SET_EQUALS: lambda s, v: f"{s.text()} == {_set_text(v)}",
    Kind.SHAPE: lambda s, v: v.text(), Kind.VALUES: lambda s, v: f"{s.text()} holds {v.text()}",
    Kind.TYPE_FIELD: lambda s, v: f"{s.text()}.{v[0]} == {name_of(v[1])}", Kind.PARTITION: lambda s, v: v.text()}
