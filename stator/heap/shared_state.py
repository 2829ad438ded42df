"""State and memory with two names.   d["n"] = 2; return o.n   ->  a guard: d is not o.__dict__, as it was

In: the records at the end of a trace.  Out: for each written class of state, one guard over every place of such a
state.  Outside memory has faces: tensors, which the graph writes; arrays and bytearrays, whose copies are written back
after the graph.  The trace breaks between two faces of one memory if one is written; overlaps are guarded.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.partition import Address, NoAddress, Range, SharedPlace, byte_range, partition
from stator.guards.tensor_meta import same_contents
from stator.heap.iterators.peekable_iterators import may_walk, walks
from stator.heap.pure_readers import bytes_of, entries_of_class, held_dict, mapping_behind, proxy_of_class
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
            places.append(SharedPlace(source, written=id(state) in changed))
            states.append(state)
        # Objects that a call brings, or a reader makes, have a guard apart: a guard over objects that stay is proven
        # by their staying.
        for brought in (False, True):
            chosen = [i for i, place in enumerate(places) if place.written or brought is (
                type(place.source) is Local or type(place.source.root or place.source) is CallOf)]
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
        """Instance dicts of which names were read, of objects that stand for themselves."""
        owners: dict[Source, Any] = {tracker.source: tracker for tracker in self.heap.trackers}
        functions = {self.heap.sources[id(each)]: each for each in self.heap.kept if id(each) in self.heap.sources}
        guarded = [guard.source for guard in self.heap.guards.single()]
        for source in dict.fromkeys([each if type(each) is DictOf else each.base for each in guarded]):
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
        for instance, seen in heap.replayed.plays:
            for image, place in seen:
                if id(image) in heap.by_original:
                    continue
                if type(image) in self.written:
                    yield image, instance.source(place), image
                if dict in self.written and (own := held_dict(image)) is not None:
                    yield own, DictOf(instance.source(place)), own


def faces(tracker: VariableTracker) -> Iterable[tuple[Any, Source]]:
    """The states that belong to an outside object, and where each is found."""
    original, source = tracker.original, tracker.source
    if type(source) is CallOf and source.fn.obj in (entries_of_class, proxy_of_class):
        return ()  # a copy, and the view of it: they show what is written to the class
    has_dict = tracker.initial_dict is not None or tracker.shape is ShadowKind.TENSOR and tracker.mutated
    own = instance_dict(original) if has_dict else None
    found = [] if own is None else [(own, DictOf(source))]
    is_its_dict = own is not None and tracker.shape is ShadowKind.OBJECT and not tracker.initial_slots
    if tracker.shape not in _UNCHANGING and not is_its_dict:
        found.append((original, source))
    return found


def _shadow(tracker: VariableTracker, state: object) -> Any:
    """The stand-in for a state of the object."""
    if state is tracker.original:
        return tracker.standin
    return tracker if tracker.shape is ShadowKind.TENSOR else instance_dict(tracker.standin)


def guard_two_names(heap: Heap, class_overlays: dict[type, dict[str, Any]], reshaped: Iterable[Any] = ()) -> None:
    """Guard which names a written state has; `reshaped`: graph inputs whose layout the graph changes."""
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
        if other.shape is ShadowKind.PEEKABLE and may_walk(type(other.original), mutated.original) \
                and not walks(other.original, mutated.original):
            heap.guard_call(walks, False, other.source, mutated.source)


NOWHERE = (0, 0, 0)


def extent_of(value: object) -> Range:
    """The memory that an array or a buffer shows, or the storage that a tensor lies in."""
    try:
        return byte_range(Address.STORAGE if is_a(value, torch.Tensor) else Address.MEMORY, value)
    except NoAddress:
        return NOWHERE


def overlap(left: Range, right: Range) -> bool:
    return left[0] < right[1] and right[0] < left[1]


class Faces:
    """The faces of outside memory that one trace has met."""

    __slots__ = ("heap", "copies", "tied", "watched", "touched")

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.copies: list[VariableTracker] = []  # buffers, and arrays whose contents were read
        self.tied: set[int] = set()  # stand-ins of arrays on whose memory the program has a tensor of the graph
        self.watched: dict[int, Any] = {}  # stand-ins of arrays whose memory has another face
        self.touched: set[int] = set()  # stand-ins of arrays that were changed at some time

    def clear(self) -> None:
        for held in (self.copies, self.tied, self.watched, self.touched):
            held.clear()

    def add_copy(self, tracker: VariableTracker) -> None:
        self.refuse_stale(tracker)
        mine = extent_of(tracker.original)
        for other in (*self._tensors(), *self.copies):
            if not _is_made_of(other.source, tracker) and overlap(mine, extent_of(other.original)):
                self._share(tracker, other)
        self.copies.append(tracker)
        if id(tracker.standin) in self.tied:
            self._share(tracker, None)

    def add_tensor(self, tensor: torch.Tensor, source: Source) -> None:
        mine = extent_of(tensor)
        for copy in self.copies:
            if not _is_made_of(source, copy) and overlap(mine, extent_of(copy.original)):
                self._share(copy, None)

    def tie(self, tracker: VariableTracker) -> None:
        """The program has a tensor of the graph on the memory of an array."""
        self.tied.add(id(tracker.standin))
        if tracker.exposed:
            self._share(tracker, None)

    def _share(self, copy: VariableTracker, other: VariableTracker | None) -> None:
        """A copy and another face show one memory: from now on nothing may be written to it."""
        sharing = [tracker for tracker in (copy, other) if tracker is not None]
        for tracker in sharing:
            if tracker.shape is ShadowKind.BUFFER:
                kind = type(tracker.original).__name__
                raise Break("SB005", f"a {kind} whose memory is seen through another object, too")
            if tracker.shape is ShadowKind.ARRAY and self.has_changed(tracker):
                raise Break("SB006", "a second face of the memory of an array that was changed")
        self.watched.update({id(each.standin): each.standin for each in sharing if each.shape is ShadowKind.ARRAY})

    def refuse_stale(self, tracker: VariableTracker) -> None:
        """The contents of an array are read: no operation of the graph may have written to its memory."""
        if not self.heap.recorder.log.memory:
            return
        mine = extent_of(tracker.original)
        if any(self.is_written(other) and overlap(mine, extent_of(other.original)) for other in self._tensors()):
            kind = "an array" if tracker.shape is ShadowKind.ARRAY else f"a {type(tracker.original).__name__}"
            raise Break("SB003", f"the contents of {kind} that tensor operations have changed")

    def _tensors(self) -> Iterator[VariableTracker]:
        return (tracker for tracker in self.heap.trackers if tracker.shape is ShadowKind.TENSOR)

    def has_changed(self, tracker: VariableTracker) -> bool:
        if tracker.shape is ShadowKind.BUFFER:
            return bytes_of(tracker.standin) != tracker.initial
        return tracker.exposed and not same_contents(tracker.standin, tracker.original)

    def note_changes(self) -> None:
        """C code ran on arrays; it may have changed one for a while."""
        self.touched.update(id(copy.standin) for copy in self.copies
                            if copy.shape is ShadowKind.ARRAY and self.has_changed(copy))

    def was_written(self, copy: VariableTracker) -> bool:
        """Whether the program may have written to a copy, and perhaps restored it: nobody sees writes to a buffer."""
        return copy.shape is ShadowKind.BUFFER or id(copy.standin) in self.touched or self.has_changed(copy)

    def is_written(self, tracker: VariableTracker) -> bool:
        """Whether an operation of the graph wrote to the memory of a tensor."""
        written: bool = self.heap.recorder.is_written(tracker.standin)
        return written

    def guard_overlaps(self) -> None:
        """A write through one face was not seen through the others: which of them share memory is a fact."""
        if not self.copies:
            return
        if any(self.has_changed(self.heap.by_standin[id(standin)]) for standin in self.watched.values()):
            raise Break("SB005", "an array that shares memory with another object of the trace")
        tensors = [tracker for tracker in self._tensors() if extent_of(tracker.original) != NOWHERE]
        written = [*map(self.was_written, self.copies), *map(self.is_written, tensors)]
        if len(written) > 1 and any(written):
            faces = [*self.copies, *tensors]
            places = [SharedPlace(face.source, Address.MEMORY, was) for face, was in zip(faces, written, strict=True)]
            self.heap.guard(places[0].source, Kind.PARTITION, partition(places, [face.original for face in faces]))


def _is_made_of(source: Source, array: VariableTracker) -> bool:
    """Whether a tensor is the graph's own input on the memory of an array."""
    return type(source) is CallOf and source.args == (array.source,)
