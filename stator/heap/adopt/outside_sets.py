"""Sets from outside.   {7, 2, 5}  ->  a stand-in with the same members in the same places of its table

Where the stand-ins hash as the originals do, the stand-in has the original's table and behaves as the original
(`exact`).  Members that hash by their address cannot be laid out so: such a set is walked in the order of the original;
additions and removals are done again one by one (`steps`); after any other change its order is unknown.
"""

from __future__ import annotations

import enum
import inspect
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from stator import _core
from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.outside_changes import changed_trackers
from stator.heap.pure_readers import hashed, referent_of
from stator.heap.raw_access import CONSTANT_TYPES, is_constant_tuple, raw_members
from stator.heap.services import Heap
from stator.heap.tracker import VariableTracker
from stator.host.value_kinds import is_a
from stator.source import SetAt, Source

Layout = tuple[int, int, tuple[tuple[int, int], ...]]
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_C_CODE = (*_BOUND, types.MethodDescriptorType, types.WrapperDescriptorType)
_STEPS = frozenset({"add", "discard", "remove", "clear"})
CHANGING = _STEPS | {
    "pop", "update", "intersection_update", "difference_update", "symmetric_difference_update", "__init__",
    "__ior__", "__iand__", "__isub__", "__ixor__", "ior", "iand", "isub", "ixor",
}


class SetTable:
    """Layout of the table behind a stand-in, and the operations of the program on it."""

    __slots__ = ("layout", "exact", "size", "steps", "walks")

    def __init__(self, layout: Layout, exact: bool, size: int) -> None:
        self.layout = layout  # the original's, when it was met
        self.exact = exact
        self.size = size  # when it was last looked at
        self.steps: list[tuple[Any, ...]] | None = []  # methods and what they were given; None: something else was done
        self.walks: list[Any] = []  # list iterators that stand for iterators over the set

    def is_changed(self, standin: object) -> bool:
        return bool(self.steps) or self.steps is None and _core.set_layout(standin) != self.layout


def adopt_members(heap: Heap, value: object, source: Source, target: object) -> tuple[Any, list[Any], SetTable]:
    """Fill `target`, an empty set or a class of sets, with stand-ins for the members of the user's set."""
    members = list(raw_members(value))
    if type(value) in (set, frozenset) and all(type(item) in CONSTANT_TYPES for item in members):
        heap.guard(source, Kind.SET_EQUALS, frozenset(members))
    else:
        heap.guard(source, Kind.LEN, len(members))
        members = [hashed(heap, item, SetAt(source, i)) for i, item in enumerate(members)]
        heap.services.check_hashes(members)
    layout = _core.set_layout(value)
    subclass = is_a(target, type) and target not in (set, frozenset)
    standin = heap.services.run_native(_core.fill_set, (frozenset if subclass else target, layout, members))
    if subclass:  # a copy of a frozenset keeps the places of its members, which a list of them does not
        standin = heap.services.run_native(frozenset.__new__, (target, standin))
    return standin, members, SetTable(layout, _core.set_layout(standin) == layout, len(members))


def guard_layout(heap: Heap, source: Source, layout: Layout) -> None:
    heap.guard_call(_core.set_layout, layout, source)


def expose_order(heap: Heap, tracker: VariableTracker) -> None:
    """C code may iterate the stand-in: equal sets with other histories have other orders."""
    if len(tracker.initial) < 2:
        return
    if tracker.table.exact:
        return guard_layout(heap, tracker.source, tracker.table.layout)
    if any(a is not b for a, b in zip(raw_members(tracker.standin), tracker.initial, strict=False)):
        tracker.exposed = False
        raise Break("SB013", "the order of a set, which its copy does not keep")


def walk(heap: Heap, tracker: VariableTracker) -> Iterator[Any]:
    """An iterator over the members of a set that could not be laid out, in the order of the original."""
    changed = tracker.table.is_changed(tracker.standin)
    if changed and len(tracker.standin) > 1:
        raise Break("SB013", "the order of a set whose members hash by identity")
    iterator = iter(list(raw_members(tracker.standin) if changed else tracker.initial))
    tracker.table.walks.append(iterator)
    heap.tables.walks[id(iterator)] = tracker
    return iterator


def note_operation(heap: Heap, fn: Any, args: tuple[Any, ...], failed: bool) -> None:
    """C code has run, on a stand-in for a set perhaps: what it did to that."""
    bound = type(fn) in _BOUND and id(fn.__self__) in heap.tables.sets
    tracker = heap.tables.sets.get(id(fn.__self__) if bound else id(args[0]) if args else 0)
    if tracker is None or type(fn) not in _C_CODE or fn.__name__ not in CHANGING:
        return
    table, standin = tracker.table, tracker.standin
    size, table.size = table.size, len(standin)
    if fn.__name__ in _STEPS and not failed:
        if size == table.size and fn.__name__ != "clear":
            return
        given = args[-1:] if fn.__name__ != "clear" else ()
        table.exact = table.exact and all(map(hashes_alike, given))
        if table.steps is not None:
            table.steps.append((fn.__name__, *given))
    else:
        table.exact = table.exact and all(hashes_alike(each) or _refers_alike(heap, tracker, each)
                                          for each in raw_members(standin))
        table.steps = None
    if size != table.size and any(map(is_under_way, table.walks)):
        raise Break("SB013", "a set from outside that is changed while it is iterated")
    if not table.exact and table.steps is None:
        raise Break("SB013", f"the order that {fn.__name__} leaves in a set whose members hash by identity")


def hashes_alike(item: object) -> bool:
    """Whether what is rebuilt for a value has its hash."""
    cls = type(item)
    return cls in CONSTANT_TYPES or cls is tuple and is_constant_tuple(item) or is_a(item, (type, enum.Enum))


def _refers_alike(heap: Heap, tracker: VariableTracker, item: object) -> bool:
    """Whether a weak reference hashes as that of the residual: it was a member, or Python code hashes its object."""
    if not isinstance(item, weakref.ref):
        return False
    if any(item is each for each in tracker.initial):
        return True
    referent = referent_of(item)
    return heap.tracker_of(referent) is not None and type(inspect.getattr_static(type(referent), "__hash__", None)) is \
        types.FunctionType


def require_same_hashes(heap: Heap, members: Iterable[object]) -> None:
    """Break where the object of a weak reference was changed since the set hashed it."""
    changed = changed_trackers(heap)
    for item in members:
        if isinstance(item, weakref.ref) and any(heap.tracker_of(referent_of(item)) is each for each in changed):
            raise Break("SB013", "the order of a set of weak references to objects that were changed")


def is_under_way(iterator: object) -> bool:
    """Whether a list iterator has not come to its end."""
    return len(iterator.__reduce__()) == 3  # one that has ended has no state
