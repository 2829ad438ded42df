"""Two names for one state.   d["n"] = 2; return o.n   ->  a guard: d is not o.__dict__, as it was

In: the records at the end of a trace.  Out: for each class of state that was written to, one guard over every place
where the trace has met such a state: which of them are one is as it was.  A state is an object with contents of its
own; an instance and its dict are two faces of one, and the namespace of a module or class is one.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.partition import Place, partition
from stator.heap.iterators.peekable_iterators import may_walk, walks
from stator.heap.pure_readers import entries_of_class, mapping_behind, proxy_of_class
from stator.heap.raw_access import instance_dict
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.host.value_kinds import is_a
from stator.source import CallOf, DictOf, Local, Pinned, Source

_UNCHANGING = frozenset({ShadowKind.TUPLE, ShadowKind.VALUE})


class States:
    """The states of one trace, by class: each state, where it was met and whether it was written to."""

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.written: dict[type, dict[Source, Any]] = {}

    def write(self, state: object, source: Source) -> None:
        """The trace has written to a state."""
        self.written.setdefault(type(state), {})[source] = state

    def guard(self) -> None:
        """Which places are one state is as it was, where one of them was written to."""
        if not self.written:
            return
        met: dict[type, dict[Source, tuple[Any, Any]]] = {cls: {} for cls in self.written}
        for state, source, shadow in self._met():
            if type(state) in met:
                met[type(state)].setdefault(source, (state, shadow))
        for cls, written in self.written.items():
            for source, state in written.items():
                met[cls].setdefault(source, (state, None))
            self._guard_class(met[cls], written)

    def _guard_class(self, met: dict[Source, tuple[Any, Any]], written: dict[Source, Any]) -> None:
        if len(met) < 2:
            return
        changed = {id(state) for state in written.values()}
        shadows: dict[int, Any] = {}
        places, states = [], []
        for source, (state, shadow) in met.items():
            known = shadows.setdefault(id(state), shadow)
            if known is not shadow and id(state) in changed:
                raise Break("SB006", f"a write to {source.text()}, which is met under two names", whole_call=True)
            places.append(Place(source, written=id(state) in changed))
            states.append(state)
        # What each call brings anew is asked apart: a guard over objects that stay is proven by their staying.
        for brought in (False, True):
            chosen = [i for i, place in enumerate(places) if place.written or is_brought(place.source) is brought]
            if len(chosen) > 1:
                held = partition([places[i] for i in chosen], [states[i] for i in chosen])
                self.heap.guard(held.places[0].source, Kind.PARTITION, held)

    def _met(self) -> Iterator[tuple[Any, Source, Any]]:
        """Every state of the trace, where it was met, and what stands for it."""
        heap = self.heap
        for tracker in heap.trackers:
            for state, source in faces(tracker):
                yield state, source, _shadow(tracker, state)
        if dict in self.written:
            for scope in heap.scopes.values():
                yield scope.namespace, scope.source, scope if scope.shadow is None else scope.shadow
            yield from self._asked_dicts()
        yield from self._unrecorded()

    def _asked_dicts(self) -> Iterator[tuple[Any, Source, Any]]:
        """Instance dicts of which names were asked, of objects that stand for themselves."""
        owners: dict[Source, Any] = {tracker.source: tracker for tracker in self.heap.trackers}
        functions = {self.heap.sources[id(each)]: each for each in self.heap.kept if id(each) in self.heap.sources}
        for guard in self.heap.guards.single():
            source = guard.source if type(guard.source) is DictOf else guard.source.base
            if type(source) is not DictOf:
                continue
            tracker, function = owners.get(source.base), functions.get(source.base)
            owner = function if tracker is None else tracker.original
            state = None if owner is None or is_a(owner, type) else instance_dict(owner)
            if state is not None:
                known = self.heap.by_original.get(id(state))
                yield state, source, known and known.standin if tracker is None else _shadow(tracker, state)

    def _unrecorded(self) -> Iterator[tuple[Any, Source, Any]]:
        """Objects that the trace knows something of and has not adopted."""
        heap = self.heap
        if collections.OrderedDict in self.written:
            for table, source in heap.glanced:
                if id(table) not in heap.by_original:
                    yield table, source, table
        for said, seen in heap.replayed.plays:
            for image, place in seen:
                if id(image) in heap.by_original:
                    continue
                if type(image) in self.written:
                    yield image, said.source(place), image
                if dict in self.written and (own := instance_dict(image)) is not None:
                    yield own, DictOf(said.source(place)), own


def is_brought(source: Source) -> bool:
    """Whether a call brings the object itself, or a reader makes it, rather than an object that stays."""
    return type(source) is Local or type(source.root or source) is CallOf


def faces(tracker: VariableTracker) -> Iterable[tuple[Any, Source]]:
    """The states that belong to an outside object, and where each is found."""
    original, source = tracker.original, tracker.source
    if type(source) is CallOf and source.fn.obj is entries_of_class:
        return ()  # a copy; a write to the class breaks
    has_dict = tracker.initial_dict is not None or tracker.shape is ShadowKind.TENSOR and tracker.mutated
    own = instance_dict(original) if has_dict else None
    found = [] if own is None else [(own, DictOf(source))]
    is_its_dict = own is not None and tracker.shape is ShadowKind.OBJECT and not tracker.initial_slots
    if tracker.shape not in _UNCHANGING and not is_its_dict:
        found.append((original, source))
    return found


def _shadow(tracker: VariableTracker, state: object) -> Any:
    """What stands for a state of the object."""
    if state is tracker.original:
        return tracker.standin
    return tracker if tracker.shape is ShadowKind.TENSOR else instance_dict(tracker.standin)


def guard_two_names(heap: Heap, class_overlays: dict[type, dict[str, Any]], reshaped: Iterable[Any] = ()) -> None:
    """What was written through one name was not seen through another, or was: so it stays.

    reshaped: graph inputs whose layout the graph changes, which is read of the tensor under any of its names.
    """
    states = States(heap)
    for each in reshaped:
        if each.tensor is not None:
            states.write(each.tensor, each.source)
    for tracker in heap.trackers:
        if tracker.mutated or id(tracker) in heap.changes.handled:
            _guard_walks(heap, tracker)
            for state, source in faces(tracker):
                states.write(state, source)
    for scope in heap.scopes.values():
        if scope.overlay:
            states.write(scope.namespace, scope.source)
    for cls, overlay in class_overlays.items():
        if overlay:
            states.write(mapping_behind(proxy_of_class(cls)), DictOf(Pinned(cls)))
    states.guard()


def _guard_walks(heap: Heap, mutated: VariableTracker) -> None:
    """An iterator over another container is still no iterator over this one."""
    for other in heap.trackers:
        if other.shape is ShadowKind.UPCOMING and may_walk(type(other.original), mutated.original) \
                and not walks(other.original, mutated.original):
            place = CallOf(Pinned(walks), (other.source, mutated.source))
            heap.guard(place, Kind.FRESH_CALL, False)
