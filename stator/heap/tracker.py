"""The record of one outside value: its stand-in, the user's object, where it came from, what it held."""

from __future__ import annotations

import enum
from typing import Any

from stator.source import Source


class ShadowKind(enum.Enum):
    """What kind of contents a record has, hence how it is filled, diffed and written back."""

    __hash__ = object.__hash__  # members are but one each; Enum's own is written in Python

    TENSOR = "tensor"
    LIST = "list"  # list, deque and their subclasses
    TUPLE = "tuple"
    DICT = "dict"
    SET = "set"
    OBJECT = "object"  # only a __dict__ and slots
    CELL = "cell"
    SCOPE = "scope"  # a namespace of a module or a class, read name by name
    UPCOMING = "upcoming"  # an iterator, by the items it has yet to yield
    OPAQUE = "opaque"  # the user's object itself; only its identity may be used
    ITERATOR = "iterator"  # a C iterator; `initial` is where it stood
    ARRAY = "array"  # numpy.ndarray; filled once its contents are read
    BUFFER = "buffer"  # bytearray, array.array; `initial` holds their bytes
    VALUE = "value"  # immutable payload copied (int/str subclasses, bytearray ...)


# They change when they are read, or where nobody notes it.
MOVING = frozenset({ShadowKind.UPCOMING, ShadowKind.ITERATOR, ShadowKind.ARRAY, ShadowKind.BUFFER})


class VariableTracker:
    """One outside object. `initial` holds the boxes its container part had when it was adopted,
    `initial_dict` those of its instance dict, `initial_slots` those of its slots."""

    __slots__ = ("standin", "original", "source", "shape", "initial", "initial_dict", "initial_slots",
                 "exposed", "type_guarded", "mutated", "part_of", "dict_owner", "table")

    def __init__(self, standin: Any, original: Any, source: Source, shape: ShadowKind) -> None:
        self.standin = standin
        self.original = original
        self.source = source
        self.shape = shape
        self.initial: Any = None
        self.initial_dict: dict[str, Any] | None = None
        self.initial_slots: dict[Any, Any] | None = None
        self.exposed = False
        self.type_guarded = False
        self.mutated = False
        self.part_of: VariableTracker | None = None  # an instance dict: written back with the instance
        self.dict_owner: VariableTracker | None = None  # who writes the instance dict back, if it is not this record
        self.table: Any = None  # of a set: what is known of its order (SetTable)

    def __repr__(self) -> str:
        return f"<{self.shape.value} {self.source.text()}: {type(self.original).__name__}>"
