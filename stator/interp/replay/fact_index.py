"""What the trace knows, by the place it knows it of.   a module's source  ->  the guards and records below it

In: the guards and records of the heap, in order of arrival.  Out: those that start at one source, without looking at
the others.  It is brought up to date when it is asked, so that a trace without repeated structure pays nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

from stator.guards.guard import Guard, Kind
from stator.heap.heap import Heap
from stator.source import CallOf, Source, parents

RELATIONS = frozenset({Kind.ALIAS, Kind.NOT_ALIAS})
_NAMING = frozenset({Kind.ID, Kind.NOT_ID, Kind.KEYS, Kind.ABSENT, Kind.PRESENT, Kind.SET_EQUALS, Kind.EQUALS,
                     Kind.FRESH_CALL})


_NONE: set[Any] = set()


class FactIndex:
    """The facts of one trace so far."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.below: dict[Source, list[Source]] = {}
        self.guards: dict[Source, list[tuple[int, Guard]]] = {}
        self.trackers: dict[Source, list[tuple[int, Any]]] = {}
        self.functions: dict[Source, list[int]] = {}  # ids of what stands for itself
        self.naming: dict[int, int] = {}  # id of an object that a guard names -> the first such guard
        self.kept: dict[int, Any] = {}
        self.glanced: dict[Source, list[Any]] = {}  # empty tables of which nothing else was asked
        self.replayed: dict[Source, list[Any]] = {}  # objects that a replay has seen at a place
        self.relations: dict[Source, set[tuple[Source, Kind, Source]]] = {}
        self.taken = [0, 0, 0, 0, 0, 0]
        self.related_taken = 0

    def update(self) -> None:
        heap = self.heap
        guards, trackers, functions, kept, replays, glanced = self.taken
        for number, entry in enumerate(itertools.islice(heap.guards.arrived(), guards, None), guards):
            for guard in (entry,) if type(entry) is Guard else entry.guards():
                self._note(self.guards, guard.source, (number, guard))
                if guard.kind in RELATIONS:
                    self._note(self.guards, guard.value, (number, guard))
                elif guard.kind is Kind.PARTITION:
                    for place in guard.value.places[1:]:
                        self._note(self.guards, place.source, (number, guard))
                elif guard.kind in _NAMING:
                    self._name(guard.value, number)
        for number in range(trackers, len(heap.trackers)):
            self._note(self.trackers, heap.trackers[number].source, (number, heap.trackers[number]))
        for key, source in itertools.islice(heap.sources.items(), functions, None):
            self._note(self.functions, source, key)
        self.kept.update((id(value), value) for value in itertools.islice(heap.kept, kept, None))
        for said, seen in itertools.islice(heap.replayed.plays, replays, None):
            for image, place in seen:
                source = said.source(place)
                self.replayed.setdefault(source, []).append(image)
                self.link(source)
        for table, source in itertools.islice(heap.glanced, glanced, None):
            self._note(self.glanced, source, table)
        self.taken = [len(heap.guards), len(heap.trackers), len(heap.sources), len(heap.kept), len(heap.replayed.plays),
                      len(heap.glanced)]

    def _note(self, table: dict[Source, list[Any]], source: Source, item: object) -> None:
        known = table.get(source)
        if known is None:
            known = table[source] = []
            self.link(source)
        known.append(item)

    def link(self, source: Source) -> None:
        below = self.below
        if source in below:
            return
        below[source] = []
        for parent in (source.base,) if type(source) is not CallOf else parents(source):
            if parent is not None:
                if parent not in below:
                    self.link(parent)
                below[parent].append(source)

    def _name(self, value: object, number: int) -> None:
        if type(value) is tuple or type(value) is frozenset:
            for item in value:
                self._name(item, number)
        else:
            self.naming.setdefault(id(value), number)

    def related(self, source: Source) -> set[tuple[Source, Kind, Source]]:
        """What is known of other places that hold the same object, or do not."""
        guards = self.heap.guards
        for guard in itertools.islice(guards.arrived(), self.related_taken, None):  # no pattern says such a thing
            if type(guard) is Guard and guard.kind in RELATIONS:
                for each in (guard.source, guard.value):
                    self.relations.setdefault(each, set()).add((guard.source, guard.kind, guard.value))
        self.related_taken = len(guards)
        return self.relations.get(source, _NONE)

    def under(self, source: Source) -> list[Source]:
        """The source and everything that starts at it."""
        found: dict[Source, None] = {}
        todo = [source]
        while todo:
            each = todo.pop()
            if each not in found:
                found[each] = None
                todo += self.below.get(each, ())
        return list(found)
