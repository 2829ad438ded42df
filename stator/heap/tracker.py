"""The record of one outside value, and its unread places.

    Box(raw value, how to name the place)  --force-->  the stand-in, with the guard that pins the value

A shadow is a real container of boxes: an element that nobody reads is guarded by nothing.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from operator import is_
from typing import Any

from stator.breaks import Break, Strategy
from stator.heap.services import Heap
from stator.source import Source

Reference = Callable[[], Any]  # answers with an object, or with None after its end


def referring(obj: object) -> Reference:
    """Refer to an object weakly, where that can be done: the program may watch it die."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj


class ShadowKind(enum.Enum):
    """Kind of the contents of a record: decides how it is filled, compared and written back."""

    __hash__ = object.__hash__  # members are but one each; Enum's own is written in Python

    TENSOR = "tensor"
    LIST = "list"  # list, deque and their subclasses
    TUPLE = "tuple"
    DICT = "dict"
    SET = "set"
    OBJECT = "object"  # only a __dict__ and slots
    CELL = "cell"
    PEEKABLE = "peekable"  # an iterator, by the items it has yet to yield
    OPAQUE = "opaque"  # the user's object itself; only its identity may be used
    ITERATOR = "iterator"  # a C iterator; `initial` is where it stood
    ARRAY = "array"  # numpy.ndarray; filled once its contents are read
    BUFFER = "buffer"  # bytearray, array.array; `initial` holds their bytes
    VALUE = "value"  # immutable payload copied (int/str subclasses, bytearray ...)


# They change when they are read, or where nobody notes it.
MOVING = frozenset({ShadowKind.PEEKABLE, ShadowKind.ITERATOR, ShadowKind.ARRAY, ShadowKind.BUFFER})


class VariableTracker:
    """One outside object. `initial` holds the boxes its container part had when it was adopted,
    `initial_dict` those of its instance dict, `initial_slots` those of its slots."""

    __slots__ = ("standin", "original", "source", "shape", "initial", "initial_dict", "initial_slots",
                 "exposed", "type_guarded", "mutated", "part_of", "dict_owner", "table")

    def __init__(self, standin: Any, original: Any, source: Source, shape: ShadowKind, initial: Any = None) -> None:
        self.standin, self.original, self.source, self.shape = standin, original, source, shape
        self.initial = initial
        self.initial_dict: dict[str, Any] | None = None
        self.initial_slots: dict[Any, Any] | None = None
        self.exposed = self.type_guarded = self.mutated = False
        self.part_of: VariableTracker | None = None  # an instance dict: written back with the instance
        self.dict_owner: VariableTracker | None = None  # who writes the instance dict back, if it is not this record
        self.table: Any = None  # of a set: what is known of its order (SetTable)

    def __repr__(self) -> str:
        return f"<{self.shape.value} {self.source.text()}: {type(self.original).__name__}>"


def recorded(adopt: Callable[..., Any]) -> Callable[..., Any]:
    """An adopter of objects without a record; for others, guard that both places hold one object."""
    def adopter(heap: Heap, value: object, source: Source) -> Any:
        tracker = heap.known(value, source)
        return adopt(heap, value, source) if tracker is None else tracker.standin
    return adopter


class Box:
    """A place of an outside object that has not been read yet (or has: then `value` is its stand-in)."""

    __slots__ = ("heap", "raw", "make", "base", "key", "value", "forced")

    def __init__(self, heap: Heap, raw: object, make: Callable[..., Source], base: Source, key: object) -> None:
        self.heap, self.raw, self.base, self.key = heap, raw, base, key
        self.make = make  # the Source class of the place; called as make(base, key) only when forced
        self.forced = False

    def source(self) -> Source:
        return self.make(self.base, self.key) if self.key is not NO_KEY else self.make(self.base)

    def force(self) -> Any:
        if not self.forced:
            source, known = self.source(), id(self.raw) in self.heap.by_original
            try:
                self.value = self.heap.adopt(self.raw, source)
            except Break as stop:  # no stand-in: the object itself, and a break where it is used
                if not known:
                    self.heap.take_back(self.raw)
                if stop.code == "SB019" or stop.stack or type(self.raw) in (list, tuple) \
                        or stop.stop.turn_off is Strategy.HASHES:
                    # The trace would keep it alive; a function of the program broke half-way; nobody
                    # asks a list whether it is a stand-in.
                    raise
                self.value = self.heap._adopt_opaque(self.raw, source)
                self.heap.refused[id(self.raw)] = stop
            self.forced = True
        return self.value

    def is_current(self, value: object) -> bool:
        """Whether `value`, found in this place at the end of the trace, is what was there at the start."""
        return value is self or (self.forced and value is self.value)


NO_KEY = object()


def is_current(box: object, value: object) -> bool:
    """The same for a place that may hold an object of the start itself."""
    return value is box or type(box) is Box and box.is_current(value)


def untouched(initial: dict[Any, Any], now: dict[Any, Any]) -> bool:
    """Whether a plain dict holds the very keys and boxes that it got, in their order; False where that is unsure."""
    return type(now) is dict and len(initial) == len(now) and all(map(is_, initial, now)) \
        and all(map(is_, initial.values(), now.values()))


def unbox(value: object) -> Any:
    """The stand-in for a value just read from a container."""
    return value.force() if type(value) is Box else value
