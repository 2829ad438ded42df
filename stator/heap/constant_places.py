"""Which object an outside constant is.   a string, a float, a tuple from outside  ->  the places it was read from

Constants are guarded by their value.  A program that asks `a is b`, or `id(a)`, asks for more: then the places are
guarded to hold one object, or two.  Containers that cannot change (tuples, frozensets) are handed out as they came.
"""

from __future__ import annotations

from typing import Any

import torch

from stator._core import set_layout
from stator.guards.guard import Kind, same_constant
from stator.heap.adopt.outside_sets import guard_layout
from stator.heap.services import Heap
from stator.source import Source

# Equal values of these types are one object, or close enough that nobody tells them apart.
_SINGLE = frozenset({type(None), bool, type(...), type(NotImplemented), torch.dtype, torch.layout,
                     torch.memory_format, torch.qscheme})
# Results hold the very object: text and numbers are made anew, as CPython itself may.
KEPT = frozenset({tuple, frozenset, torch.Size})


class Constants:
    """The outside constants of one trace, by identity."""

    __slots__ = ("heap", "places")

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.places: dict[int, tuple[Any, list[Source]]] = {}  # the value is held: its id stays its own

    def clear(self) -> None:
        self.places.clear()

    def note(self, value: Any, source: Source) -> None:
        """A constant was read from a place."""
        cls = type(value)
        if cls in _SINGLE or cls is int and -5 <= value <= 256 or cls is str and len(value) < 2:
            return
        known = self.places.get(id(value))
        if known is None:
            self.places[id(value)] = (value, [source])
        elif source not in known[1]:
            known[1].append(source)

    def source_of(self, value: object) -> Source | None:
        """Where the very object can be found again, if results are to hold it."""
        known = self.places.get(id(value)) if type(value) in KEPT else None
        return None if known is None else known[1][0]

    def guard_order(self, value: frozenset[Any]) -> None:
        """Somebody runs through a frozenset: equal ones with other histories have other orders."""
        known = self.places.get(id(value))
        if known is not None and len(value) > 1:
            guard_layout(self.heap, known[1][0], set_layout(value))

    def guard_one(self, value: object) -> None:
        """The program saw that two values are one object."""
        known = self.places.get(id(value))
        if known is None:
            return
        first, *rest = known[1]
        for other in rest:
            self.heap.guard(other, Kind.ALIAS, first)
        if not rest:  # the other side may be a literal of the program
            self.heap.guard(first, Kind.ID, value)

    def guard_identity(self, value: Any) -> None:
        """The program looked at the address."""
        known = self.places.get(id(value))
        for source in () if known is None else known[1]:
            self.heap.guard(source, Kind.ID, value)

    def guard_two(self, left: object, right: object) -> None:
        """The program saw that two values are not one object; where they differ, that is known already."""
        mine, other = self.places.get(id(left)), self.places.get(id(right))
        if mine is None and other is None or not same_constant(left, right):
            return
        if mine is None or other is None:
            known, literal = (other, left) if mine is None else (mine, right)
            assert known is not None
            for source in known[1]:
                self.heap.guard(source, Kind.NOT_ID, literal)
            return
        for source in mine[1]:
            for another in other[1]:
                self.heap.guard(source, Kind.NOT_ALIAS, another)
