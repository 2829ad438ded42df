"""Objects that are distinguished by identity.   `o in [a, b]`, `{o, a}`, `d[o]`  ->  guards: o is not a, ...

C code compares by `is` before it calls `__eq__`: outside objects that were found to be different stay so.
"""

from __future__ import annotations

import collections
import decimal
import functools
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import torch

from stator._core import set_layout
from stator.guards.guard import Kind, same_constant
from stator.heap.adopt.outside_sets import guard_layout
from stator.heap.pure_readers import DICT_VIEWS, arguments_of, mapping_behind, referent_of
from stator.heap.raw_access import instance_dict, raw_members
from stator.heap.services import Heap
from stator.heap.tracker import Box, ShadowKind
from stator.host.value_kinds import is_a, mro_of
from stator.source import Pinned, Source

_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_EXACT = frozenset({*_CONTAINERS, dict})  # equal to themselves, since their items are compared by `is` first
_BOUND = (types.MethodType, types.MethodWrapperType, types.BuiltinMethodType)
_HASHED = (set, frozenset, dict)
_SHAPES = frozenset({ShadowKind.OBJECT, ShadowKind.OPAQUE})
_ATOMS = frozenset({int, str, bool, bytes, type(None)})
_NOT_ASKED = _ATOMS | {float, complex, Box, types.FunctionType}
PAIRS = 32  # more are compared in one guard


def note_compared(heap: Heap, values: Sequence[Any]) -> None:
    """C code looks for the later values in the first, or compares what is in all of them."""
    if len(values) == 1:
        return _guard(heap, identities(heap, values), [])
    sought, first = identities(heap, values[1:]), values[0]
    if sought or not is_a(first, _HASHED):
        others = identities(heap, values[:1])
        if sought:
            _guard(heap, sought, others)
    elif id(first) in heap.by_standin and id(first) not in heap.tables.asked:  # members of one made inside were asked
        heap.tables.asked.add(id(first))
        for member in raw_members(first) if not is_a(first, dict) else dict.keys(first):
            note_asked(heap, member)


def note_asked(heap: Heap, value: object) -> None:
    """C code asks an object, or what is in it: what it finds on the classes must stay so."""
    if type(value) not in _NOT_ASKED:
        identities(heap, (value,))


def note_made(heap: Heap, container: Any) -> None:
    """C code has put things together by their hashes, from an iterator perhaps: those it kept are different ones."""
    if is_a(container, _HASHED):
        keys = identities(heap, dict.keys(container) if is_a(container, dict) else raw_members(container))
        if len(keys) > 1:
            _guard(heap, keys, [])


def identities(heap: Heap, values: Iterable[Any]) -> list[Source]:
    """The places of the outside objects in `values`, and in containers there, that C code compares by `is`."""
    found: dict[int, Source] = {}
    seen: set[int] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        cls = type(value)
        if cls in _ATOMS and id(value) not in heap.by_standin:
            continue
        if cls in _BOUND:
            value = value.__self__
        elif is_a(value, weakref.ref):
            value = referent_of(value)
        elif is_a(value, types.SimpleNamespace):
            pending.append(instance_dict(value))  # and not its values: it may hold itself
        elif cls is slice:
            pending += (value.start, value.stop, value.step)
        elif cls is types.CellType and id(value) not in seen and value != types.CellType():
            seen.add(id(value))
            pending.append(value.cell_contents)
        elif cls is functools.partial:
            pending += (value.args, value.keywords)
        elif is_a(value, BaseException):
            pending.append(arguments_of(value))
        cls = type(value)
        if cls in DICT_VIEWS:
            value = mapping_behind(value)
        if is_a(value, _CONTAINERS) or is_a(value, dict):
            if id(value) not in seen:
                seen.add(id(value))
                pending.extend(dict.keys(value) if is_a(value, dict) else raw_members(value))
                if is_a(value, dict):
                    pending.extend(dict.values(value))
            if cls in _EXACT:
                continue
        if cls not in _NOT_ASKED:
            heap.services.asked_by_c(value)
        source = _place(heap, value)
        if source is not None:
            found[id(value)] = source
    return list(found.values())


def _place(heap: Heap, value: object) -> Source | None:
    if type(value) is types.FunctionType:
        source = heap.sources.get(id(value))
        return None if type(source) is Pinned else source
    if type(value) in (float, complex):  # of these, which object it is is known of NaNs alone
        return heap.sources.get(id(value)) if value != value else None
    tracker = heap.by_standin.get(id(value))
    if tracker is None:
        return None
    if tracker.shape is ShadowKind.TENSOR:  # which parameter it is, is a fact of its own
        return None if is_a(tracker.original, torch.nn.Parameter) else tracker.source
    return tracker.source if tracker.shape in _SHAPES or not _is_equal_to_itself(value) else None


def _is_equal_to_itself(value: Any) -> bool:
    """Whether C code that compares it says so, asking its parts at most; False where Python code may be asked."""
    if type(value) is types.CellType:  # it compares what it holds
        return False
    base = next(base for base in mro_of(type(value)) if "__eq__" in base.__dict__)
    if type(base.__dict__["__eq__"]) is not types.WrapperDescriptorType:
        return False
    if is_a(value, decimal.Decimal):
        return not decimal.Decimal.is_nan(value)
    return not is_a(value, (float, complex, numpy.generic)) or not base.__ne__(value, value)


def _guard(heap: Heap, sought: list[Source], others: list[Source]) -> None:
    others = [source for source in others if source not in sought]
    if len(sought) * (len(sought) - 1) // 2 + len(sought) * len(others) > PAIRS:
        heap.guard_call(are_distinct, True, *sought, *others)
        return
    for i, source in enumerate(sought):
        for other in (*sought[i + 1:], *others):
            heap.guard(source, Kind.NOT_ALIAS, other)


def are_distinct(*objects: object) -> bool:
    """A pure reader for guards: whether no two are one."""
    return len(set(map(id, objects))) == len(objects)


# Equal values of these types are one object, or interchangeable.
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

    def guard_identity(self, value: object) -> None:
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
