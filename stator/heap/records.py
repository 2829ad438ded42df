"""Records of outside values.   a user's object  <->  its stand-in, where both were found, and their changes

Out: identity both ways, guards, and the records to compare at the end of the trace.  `Scope` is a namespace read name
by name, under one guard each; writes are kept in an overlay until write-back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stator.breaks import Break
from stator.graph.record.recorder import Recorder
from stator.guards.guard import MISSING, Guard, Kind
from stator.guards.guard_set import GuardSet, PatternInstance
from stator.heap import outside_changes
from stator.heap.adopt.decimal_state import ThreadContext
from stator.heap.adopt.outside_sets import SetTable
from stator.heap.raw_access import instance_dict
from stator.heap.reached_state import Reach
from stator.heap.services import Heap
from stator.heap.tracker import MOVING, NO_KEY, Box, Reference, ShadowKind, VariableTracker, unbox
from stator.host.mechanism import Mechanism
from stator.host.suspended_patches import names_of_module
from stator.shapes.policy import Policy
from stator.source import CallOf, Global, Pinned, Source


class Scope:
    """One outside namespace dict, its overlay of writes and the names already read."""

    __slots__ = ("heap", "namespace", "source", "overlay", "reborn", "seen", "shadow")

    def __init__(self, heap: Heap, namespace: dict[str, Any]) -> None:
        self.heap, self.namespace, self.source = heap, namespace, Pinned(namespace)
        self.overlay: dict[str, Any] = {}  # name -> new value, or MISSING when deleted
        self.reborn: set[str] = set()  # deleted and written again: last in the namespace from now on
        self.seen: dict[str, Any] = {}
        self.shadow: dict[str, Any] | None = None  # once the program holds the namespace itself

    def forget(self) -> None:
        self.overlay.clear()
        self.seen.clear()
        self.shadow = None

    def view(self) -> dict[str, Any]:
        """The namespace as a value (`globals()`, `module.__dict__`): from now on a shadow holds its names."""
        if self.shadow is None:
            shadow = self.heap.adopt(self.namespace, self.source)
            if self.overlay:
                self.heap.note_write(shadow)
            for name, value in self.overlay.items():
                if value is MISSING or name in self.reborn:
                    shadow.pop(name, None)
                if value is not MISSING:
                    shadow[name] = value
            self.forget()
            self.shadow = shadow
        return self.shadow

    def read(self, name: str) -> Any:
        if self.shadow is not None:
            value = self.shadow.get(name, MISSING)
            if value is MISSING and name not in self.heap.by_standin[id(self.shadow)].initial:
                self.heap.guard(self.source, Kind.ABSENT, name)
            return unbox(value)
        if name in self.overlay:
            return self.overlay[name]
        if name in self.seen:
            return self.seen[name]
        if self.heap.changes.reached:
            self.heap.changes.refuse_reached(self.namespace, name)
        names = names_of_module(self.namespace)
        if name in names:
            value = self.heap.adopt(names[name], Global(self.source, name))
        else:
            value = MISSING
            self.heap.guard(self.source, Kind.ABSENT, name)
        self.seen[name] = value
        return value

    def write(self, name: str, value: object) -> None:
        self.heap.changes.writes += 1
        if self.shadow is None:
            if self.overlay.get(name) is MISSING:
                self.reborn.add(name)
            self.overlay[name] = value
            return
        self.heap.note_write(self.shadow)
        if value is MISSING:
            del self.shadow[name]
        else:
            self.shadow[name] = value


@dataclass(slots=True, eq=False)
class HeapServices:
    """Functions of the trace that the heap calls."""

    locate: Callable[[], Any] = lambda: None  # the user's line now being interpreted
    run_native: Callable[..., Any] = lambda fn, args: fn(*args)  # with the frame hook on
    handed_to_c: Callable[[Any], Any] = lambda value: value  # a callable or a generator that C code will run
    check_hashes: Callable[[list[Any]], None] = lambda members: None  # of what C code will hash to fill a stand-in
    asked_by_c: Callable[[Any], None] = lambda value: None  # an object for its special methods


@dataclass(slots=True, eq=False)
class Namespaces(Mechanism):
    """Dicts of instances and classes, taken as values."""

    namespaces: dict[int, VariableTracker] = field(default_factory=dict)  # of a user's instance dict -> whose it is
    given: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # of an object of the trace -> it, its new dict
    owners: dict[int, Reference] = field(default_factory=dict)  # of an instance dict of the trace -> its instance
    class_views: dict[type, Any] = field(default_factory=dict)
    made_scopes: dict[int, Scope] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class HashTables(Mechanism):
    """Sets, and keys of dicts."""

    sets: dict[int, VariableTracker] = field(default_factory=dict)  # the records of sets, by their stand-ins
    walks: dict[int, VariableTracker] = field(default_factory=dict)  # list iterators that stand for those over a set
    asked: set[int] = field(default_factory=set)  # dicts and sets whose members C code asks for special methods
    hashing: int = 0  # whether keys or members of sets are being adopted


@dataclass(slots=True, eq=False)
class Changes(Mechanism):
    """Records to compare at the end."""

    writes: int = 0  # instructions and C calls that may have changed something
    written: dict[int, VariableTracker] = field(default_factory=dict)  # the records that may have been changed
    handled: set[int] = field(default_factory=set)  # of records whose objects the residual changes by a note
    decimals: ThreadContext | None = None  # contexts of decimals (see adopt/decimal_state)
    reached: list[Reach] = field(default_factory=list)  # state that calls in the graph may change (see graph_errors)

    def refuse_reached(self, value: object, name: str | None = None) -> None:
        """Break at a read of state that a call before it, which the graph makes later, may change."""
        for reach in self.reached:
            if (id(value) in reach.objects if name is None else (id(value), name) in reach.names):
                raise Break("SB006", f"{name or type(value).__name__} is read after a call that may change it")


@dataclass(slots=True, eq=False)
class ReplayedObjects(Mechanism):
    """Objects that a replayed segment has seen and nobody has adopted, and their instance dicts: the first place."""

    objects: dict[int, tuple[Any, PatternInstance, int]] = field(default_factory=dict)
    dicts: dict[int, tuple[Any, PatternInstance, int]] = field(default_factory=dict)
    plays: list[tuple[PatternInstance, list[tuple[Any, int]]]] = field(default_factory=list)  # seen objects, places


class Records(Mechanism):
    """The records of one trace, and the guards behind them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.services = HeapServices()
        self.guards = GuardSet()
        self.shapes = Policy(False)  # which sizes and numbers are left open
        self.by_original: dict[int, VariableTracker] = {}
        self.by_standin: dict[int, VariableTracker] = {}
        self.trackers: list[VariableTracker] = []
        self.scopes: dict[int, Scope] = {}
        self.sources: dict[int, Source] = {}  # of outside objects that stand for themselves
        self.dicts = Namespaces()
        self.tables = HashTables()
        self.changes = Changes()
        self.kept: list[Any] = []  # keeps every id above valid while the trace lives

    def fingerprint(self) -> Any:
        return outside_changes.fingerprint(self)  # type: ignore[arg-type]  # it is a Heap

    def replay_key(self) -> None:
        return None  # replay compares the changed objects all the way down (see mutation_check)

    def has_changes(self) -> bool:
        """Whether a namespace is changed; changed objects are found by outside_changes."""
        return any(scope.overlay for scope in self.scopes.values())

    def clear(self) -> None:
        for scope in self.scopes.values():
            scope.forget()
        for tracker in self.trackers:  # shadows are in cycles, and the boxes in them hold what they stand for
            if tracker.shape is ShadowKind.OBJECT and tracker.standin is not tracker.original:
                own = instance_dict(tracker.standin)
                if own is not None and own is not instance_dict(tracker.original):
                    own.clear()
        for held in vars(self).values():
            if type(held) is dict or type(held) is list:
                held.clear()
        for state in (self.dicts, self.tables, self.changes):
            state.clear()

    def guard(self, source: Source, kind: Kind, value: object) -> None:
        if type(source) is Pinned and kind in _PINNED_FACTS:
            return  # the object is held by the entry: what it is cannot change
        self.guards.add(Guard(source, kind, value, self.services.locate()))

    def guard_call(self, reader: object, answer: object, *sources: Source) -> None:
        """Guard the answer of a pure reader, which is called again at every entry."""
        self.guard(CallOf(Pinned(reader), sources), Kind.FRESH_CALL, answer)

    def guard_type(self, tracker: VariableTracker) -> None:
        if not tracker.type_guarded:
            tracker.type_guarded = True
            self.guard(tracker.source, Kind.TYPE, type(tracker.original))

    def source_of(self, value: object) -> Source:
        """Where a stand-in can be found again by guards and by the residual."""
        tracker = self.by_standin.get(id(value))
        if tracker is not None:
            return tracker.source
        return self.sources.get(id(value)) or Pinned(value)

    def tracker_of(self, value: object) -> VariableTracker | None:
        return self.by_standin.get(id(value))

    def is_opaque(self, value: object) -> bool:
        tracker = self.tracker_of(value)
        return tracker is not None and tracker.shape is ShadowKind.OPAQUE

    def original_of(self, value: object) -> Any:
        """The user's object behind a stand-in; a fresh or constant value is itself."""
        tracker = self.tracker_of(value)
        return value if tracker is None else tracker.original

    def box(self, raw: object, make: object, base: Source, key: object = NO_KEY) -> Box:
        return Box(self, raw, make, base, key)  # type: ignore[arg-type]  # it is a Heap

    def register(self, tracker: VariableTracker) -> VariableTracker:
        if self.changes.reached:
            self.changes.refuse_reached(tracker.original)
        self.by_original[id(tracker.original)] = tracker
        self.by_standin[id(tracker.standin)] = tracker
        self.trackers.append(tracker)
        if tracker.shape in MOVING:
            self.changes.written[id(tracker)] = tracker
        return tracker

    def take_back(self, value: object) -> None:
        """The adoption of a value ended in a break: what there is of its record stands for nothing."""
        tracker = self.by_original.get(id(value))
        if tracker is None or tracker.shape is ShadowKind.OPAQUE:
            return
        del self.by_original[id(value)]
        self.by_standin.pop(id(tracker.standin), None)
        self.tables.sets.pop(id(tracker.standin), None)
        self.changes.written.pop(id(tracker), None)
        self.trackers.remove(tracker)

    def know_set(self, tracker: VariableTracker, members: list[Any], table: SetTable) -> None:
        tracker.initial, tracker.table = members, table
        self.tables.sets[id(tracker.standin)] = tracker

    def note_write(self, value: object) -> None:
        """A value may be changed now; if it is a stand-in, a later comparison looks at it."""
        self.changes.writes += 1
        tracker = self.by_standin.get(id(value))
        if tracker is not None:
            for each in (tracker, tracker.part_of, tracker.dict_owner):
                if each is not None:
                    self.changes.written[id(each)] = each

    def note_handled(self, value: object) -> None:
        """The residual changes an outside object (takes a lock, seeds a stream) that has no contents to compare."""
        tracker = self.by_standin.get(id(value))
        if tracker is not None:
            self.changes.handled.add(id(tracker))

    def known(self, value: object, source: Source) -> VariableTracker | None:
        """The record of an object met before, guarding that both places still hold one object."""
        tracker = self.by_original.get(id(value))
        if tracker is not None and tracker.source != source:
            self.guard(source, Kind.ALIAS, tracker.source)
        return tracker


_PINNED_FACTS = {Kind.EQUALS, Kind.ID}
