"""Which faces show one memory, and who wrote to it last.   t = torch.frombuffer(b); t.add_(1); b[0]  ->  a break

Outside memory has faces: tensors, numpy arrays, bytearrays, arrays of the standard library.  A trace reads and writes
tensors when the graph runs.  It works on copies of the contents of all other faces, which it writes back after the
graph.  So a write through one face is not seen through another: the trace breaks between the two.  Where a face was
written to, which others overlap it is guarded.

A write to an array is noticed at once, and a read of its contents too.  C code reads and writes a bytearray freely: its
memory has one face in a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from stator.breaks import Break
from stator.guards.array_contents import same_contents
from stator.guards.guard import Kind
from stator.guards.partition import Address, NoAddress, Place, Range, byte_range, partition
from stator.heap.pure_readers import bytes_of
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.host.value_kinds import is_a
from stator.source import CallOf, Source

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
        """The contents of a buffer or of an array are copied now."""
        self.refuse_stale(tracker)
        mine = extent_of(tracker.original)
        for other in (*self._tensors(), *self.copies):
            if not _is_made_of(other.source, tracker) and overlap(mine, extent_of(other.original)):
                self._share(tracker, other)
        self.copies.append(tracker)
        if id(tracker.standin) in self.tied:
            self._share(tracker, None)

    def add_tensor(self, tensor: torch.Tensor, source: Source) -> None:
        """A tensor becomes an input of the graph."""
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
        for tracker in (copy, other):
            if tracker is not None and tracker.shape is ShadowKind.BUFFER:
                kind = type(tracker.original).__name__
                raise Break("SB005", f"a {kind} whose memory is seen through another object, too")
            if tracker is not None and tracker.shape is ShadowKind.ARRAY and self.has_changed(tracker):
                raise Break("SB006", "a second face of the memory of an array that was changed")
        for tracker in (copy, other):
            if tracker is not None and tracker.shape is ShadowKind.ARRAY:
                self.watched[id(tracker.standin)] = tracker.standin

    def refuse_stale(self, tracker: VariableTracker) -> None:
        """The contents of an array are read: no operation of the graph may have written to its memory."""
        if not self.heap.recorder.log.memory:
            return
        mine = extent_of(tracker.original)
        if any(self.is_written(other) and overlap(mine, extent_of(other.original)) for other in self._tensors()):
            raise Break("SB003", f"the contents of {_named(tracker)} that tensor operations have changed")

    def _tensors(self) -> Iterator[VariableTracker]:
        return (tracker for tracker in self.heap.trackers if tracker.shape is ShadowKind.TENSOR)

    def has_changed(self, tracker: VariableTracker) -> bool:
        """Whether the program wrote to a copy."""
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
            places = [Place(face.source, Address.MEMORY, was) for face, was in zip(faces, written, strict=True)]
            self.heap.guard(places[0].source, Kind.PARTITION, partition(places, [face.original for face in faces]))


def _is_made_of(source: Source, array: VariableTracker) -> bool:
    """Whether a tensor is the graph's own input on the memory of an array."""
    return type(source) is CallOf and source.args == (array.source,)


def _named(tracker: VariableTracker) -> str:
    return "an array" if tracker.shape is ShadowKind.ARRAY else f"a {type(tracker.original).__name__}"
