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

import numpy
import torch

from stator.breaks import Break
from stator.guards.array_contents import same_contents
from stator.guards.guard import Kind
from stator.heap.readers import bytes_of
from stator.heap.tracker import Shape, VariableTracker
from stator.source import CallOf, Pinned

Extent = tuple[int, int]  # the address of the first byte, and the one behind the last
_NOWHERE = (0, 0)


def extent_of(value: Any) -> Extent:
    """The memory that an array, a tensor or a buffer shows."""
    if issubclass(type(value), torch.Tensor):
        with torch._C.DisableTorchFunction():
            if value.layout is not torch.strided or value.device.type != "cpu":
                return _NOWHERE
            storage = value.untyped_storage()
            return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if type(value) is not numpy.ndarray:
        value = numpy.frombuffer(value, numpy.uint8) if len(value) else numpy.empty(0)
    return numpy.lib.array_utils.byte_bounds(value) if value.size else _NOWHERE


def overlap(left: Extent, right: Extent) -> bool:
    return left[0] < right[1] and right[0] < left[1]


def overlaps(count: int, first: int, *faces: Any) -> tuple[tuple[int, int], ...]:
    """A pure reader for guards: the first `count` faces with those that they overlap, from number `first` on."""
    extents = [extent_of(face) for face in faces]
    return tuple([(left, right) for left in range(count) for right in range(max(left + 1, first), len(extents))
                  if overlap(extents[left], extents[right])])


class Faces:
    """The faces of outside memory that one trace has met."""

    __slots__ = ("heap", "copies", "watched")

    def __init__(self, heap: Any) -> None:
        self.heap = heap
        self.copies: list[VariableTracker] = []  # buffers, and arrays whose contents were read
        self.watched: dict[int, Any] = {}  # stand-ins of arrays whose memory has another face

    def clear(self) -> None:
        self.copies.clear()
        self.watched.clear()

    def add_copy(self, tracker: VariableTracker) -> None:
        """The contents of a buffer or of an array are copied now."""
        self.refuse_stale(tracker)
        mine = extent_of(tracker.original)
        for other in (*self._tensors(), *self.copies):
            if overlap(mine, extent_of(other.original)):
                self._share(tracker, other)
        self.copies.append(tracker)

    def add_tensor(self, tensor: Any) -> None:
        """A tensor becomes an input of the graph."""
        mine = extent_of(tensor)
        for copy in self.copies:
            if overlap(mine, extent_of(copy.original)):
                self._share(copy, None)

    def _share(self, copy: VariableTracker, other: VariableTracker | None) -> None:
        """A copy and another face show one memory: from now on nothing may be written to it."""
        for tracker in (copy, other):
            if tracker is not None and tracker.shape is Shape.BUFFER:
                kind = type(tracker.original).__name__
                raise Break("SB005", f"a {kind} whose memory is seen through another object, too")
            if tracker is not None and tracker.shape is Shape.ARRAY and self.has_changed(tracker):
                raise Break("SB006", "a second face of the memory of an array that was changed")
        for tracker in (copy, other):
            if tracker is not None and tracker.shape is Shape.ARRAY:
                self.watched[id(tracker.standin)] = tracker.standin

    def refuse_stale(self, tracker: VariableTracker) -> None:
        """The contents of an array are read: no operation of the graph may have written to its memory."""
        if not self.heap.recorder.written_memory:
            return
        mine = extent_of(tracker.original)
        if any(self.is_written(other) and overlap(mine, extent_of(other.original)) for other in self._tensors()):
            raise Break("SB003", f"the contents of {_named(tracker)} that tensor operations have changed")

    def _tensors(self) -> Iterator[VariableTracker]:
        return (tracker for tracker in self.heap.trackers if tracker.shape is Shape.TENSOR)

    def has_changed(self, tracker: VariableTracker) -> bool:
        """Whether the program wrote to a copy."""
        if tracker.shape is Shape.BUFFER:
            return bytes_of(tracker.standin) != tracker.initial
        return tracker.exposed and not same_contents(tracker.standin, tracker.original)

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
        changed = [copy for copy in self.copies if self.has_changed(copy)]
        read = [copy for copy in self.copies if copy not in changed]
        tensors = list(self._tensors())
        if changed:
            self._guard_pairs(changed, [*read, *tensors], among=True)
        written = [tensor for tensor in tensors if self.is_written(tensor)] if self.heap.recorder.written_memory else []
        if written and read:
            self._guard_pairs(written, read, among=False)

    def _guard_pairs(self, left: list[VariableTracker], right: list[VariableTracker], among: bool) -> None:
        trackers = [*left, *right]
        if len(trackers) > 1:
            count, first = len(left), 0 if among else len(left)
            place = CallOf(Pinned(overlaps), (Pinned(count), Pinned(first), *[tracker.source for tracker in trackers]))
            found = overlaps(count, first, *[tracker.original for tracker in trackers])
            self.heap.guard(place, Kind.FRESH_CALL, found)


def _named(tracker: VariableTracker) -> str:
    return "an array" if tracker.shape is Shape.ARRAY else f"a {type(tracker.original).__name__}"
