"""Adopt numpy arrays and scalars from outside.   np.ones(3)  ->  an array of the same layout, filled when it is read

Contents are a fact once C code looks at them, and are compared at the end.  Memory shared with tensors:
`heap/shared_state.py`.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import numpy
import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.tensor_meta import value_of_scalar
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker, recorded
from stator.shapes.policy import SAME_CONTENTS, VALUE_OF_SCALAR
from stator.shapes.symbolic_values import GRAPH_SCALAR_OF
from stator.source import CallOf, Pinned, Source

CONTENTS_LIMIT = 1 << 22  # bytes of an array whose contents are compared at every call
_KINDS = "biufcSUmM"  # numbers, text, dates: no objects inside


def array_adopters(heap: Heap) -> dict[type, Any]:
    found: dict[type, Any] = dict.fromkeys(SCALARS, functools.partial(adopt_scalar, heap))
    found[numpy.ndarray] = functools.partial(adopt_array, heap)
    found[numpy.ufunc] = found[type(numpy.mean)] = heap._adopt_identity
    return found


# Every numpy scalar that is a plain value; numpy.void may hold fields that can be assigned.
SCALARS = frozenset(cls for cls in numpy.sctypeDict.values() if numpy.dtype(cls).kind in _KINDS)
FED = frozenset({numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.float16, numpy.float32,
                 numpy.float64})  # scalars that can be inputs of the graph


def layout_of(array: numpy.ndarray) -> Any:
    """A pure reader for guards: all of an array but its contents."""
    if type(array) is not numpy.ndarray:
        return None
    return array.dtype.str, array.shape, array.strides, array.flags.writeable


def scalar_tensor(value: object) -> torch.Tensor:
    """A numpy scalar as the input of a graph."""
    return torch.from_numpy(numpy.array(value))


@recorded
def adopt_scalar(heap: Heap, value: object, source: Source) -> Any:
    """A numpy scalar never changes: it is itself, and its value is the fact; or it is an input of the graph."""
    heap.guard(source, Kind.TYPE, type(value))
    if heap.trace_numpy and type(value) in FED and heap.shapes.feeds_numpy(source):
        held = GRAPH_SCALAR_OF[type(value)]()
        heap.register(VariableTracker(held, value, source, ShadowKind.VALUE))
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            real = scalar_tensor(value)
        held.tensor = heap.adopt(real, CallOf(Pinned(scalar_tensor), (source,)))
        heap.unread_met = True
        return held
    heap.guard(CallOf(VALUE_OF_SCALAR, (source,)), Kind.FRESH_CALL, value_of_scalar(value))
    return heap.register(VariableTracker(value, value, source, ShadowKind.VALUE)).standin


@recorded
def adopt_array(heap: Heap, value: Any, source: Source) -> Any:
    if value.dtype.kind not in _KINDS:
        return heap._adopt_opaque(value, source)
    heap.guard(source, Kind.TYPE, numpy.ndarray)
    heap.guard_call(layout_of, layout_of(value), source)
    standin = _same_layout(value)
    heap.arrays.buffers[id(standin.base)] = (standin.base, standin)
    tracker = heap.register(VariableTracker(standin, value, source, ShadowKind.ARRAY))
    tracker.type_guarded = True
    return tracker.standin


def _same_layout(value: Any) -> ndarray:
    """An array of the same layout with memory of its own, not filled yet."""
    low, high = numpy.lib.array_utils.byte_bounds(value) if value.size else (0, value.dtype.itemsize)
    start = value.__array_interface__["data"][0] - low if value.size else 0
    memory = numpy.zeros(high - low, numpy.uint8)
    return numpy.ndarray(value.shape, value.dtype, memory, start, value.strides)


class View(NamedTuple):
    """A view of an array that is the memory of a tensor; of a copy, the version of the tensor that it was made of."""

    array: ndarray
    fake: FakeTensor
    whole: FakeTensor
    version: int | None


def _is_same_view(array: ndarray, fake: FakeTensor, root: ndarray, whole: FakeTensor) -> bool:
    """Whether a tensor lies in another one as an array in its root."""
    with torch._C.DisableTorchFunction():
        if fake.untyped_storage()._cdata != whole.untyped_storage()._cdata:
            return False
        start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        offset = fake.storage_offset() * fake.itemsize - whole.storage_offset() * whole.itemsize
        strides = tuple(stride * fake.itemsize for stride in fake.stride())
        return not array.size or start == offset and all(
            size == 1 or mine == theirs for size, mine, theirs in zip(array.shape, array.strides, strides, strict=True))


class Arrays:
    """Whose memory the arrays of one trace are."""

    __slots__ = ("heap", "inputs", "backed", "buffers", "drawn", "views")

    def __init__(self, heap: Heap) -> None:
        self.heap = heap
        self.inputs: dict[int, Any] = {}  # a stand-in -> the graph's input on the memory of its original
        self.buffers: dict[int, tuple[Any, Any]] = {}  # the memory of a stand-in -> it, the stand-in
        self.backed: dict[int, tuple[Any, Any]] = {}  # an array of the trace -> it, the tensor that is its contents
        self.drawn: dict[int, Any] = {}  # those of them that the residual draws -> which draw
        self.views: dict[int, View] = {}  # arrays that are views of those

    def clear(self) -> None:
        for held in (self.inputs, self.buffers, self.drawn, self.backed, self.views):
            held.clear()  # type: ignore[attr-defined]

    def root_of(self, array: numpy.ndarray) -> Any:
        while id(array) not in self.heap.by_standin and type(array.base) is numpy.ndarray:
            array = array.base
            if id(array) in self.buffers:  # numpy lets a view of a view refer to the owner of the memory
                return self.buffers[id(array)][1]
        return array

    def back(self, array: numpy.ndarray, fake: FakeTensor) -> None:
        self.backed[id(array)] = (array, fake)
        if type(array.base) is numpy.ndarray and id(array) not in self.heap.by_standin:
            self.buffers[id(array.base)] = (array.base, array)

    def is_backed(self, array: numpy.ndarray) -> bool:
        return bool(self.backed) and (id(array) in self.backed or id(self.root_of(array)) in self.backed)

    def is_array_of(self, array: numpy.ndarray) -> bool:
        """Whether the program has met this very array."""
        return id(array) in self.backed or id(array) in self.views or id(array) in self.heap.by_standin

    def add_view(self, array: numpy.ndarray, fake: FakeTensor) -> None:
        """A view of an array that is the memory of a tensor: another view of it, or a copy for now."""
        root, whole = self.backed[id(self.root_of(array))]
        self.views[id(array)] = View(array, fake, whole, None if _is_same_view(array, fake, root, whole)
                                     else self.heap.recorder.version_of(whole))

    def expose(self, array: ndarray) -> None:
        """C code will read an array: its contents become a fact."""
        root = self.root_of(array)
        if id(array) in self.backed or id(root) in self.backed:
            raise Break("SB003", "the contents of an array that is the memory of a tensor")
        tracker = self.heap.by_standin.get(id(root))
        if tracker is None:
            return
        if tracker.shape is not ShadowKind.ARRAY:
            raise Break("SB005", "the contents of an array of objects, or of records")
        if tracker.exposed:
            return self.heap.faces.refuse_stale(tracker)
        if not self.heap.shapes.may_guard_array(tracker.source):
            raise Break("SB024", "the contents of an array, which change from call to call")
        if tracker.original.nbytes > CONTENTS_LIMIT:
            raise Break("SB005", f"the contents of an array of {tracker.original.nbytes >> 20} MiB")
        self.heap.faces.add_copy(tracker)
        numpy.copyto(root, tracker.original)
        expected = tracker.original.copy(order="C")
        self.heap.guard(CallOf(SAME_CONTENTS, (tracker.source, Pinned(expected))), Kind.FRESH_CALL, True)
        tracker.exposed = True
        if not tracker.original.flags.writeable:
            root.flags.writeable = False

    def owns_alone(self, array: numpy.ndarray) -> bool:
        """Whether an array of the trace has its memory from nowhere else. Its views break at what looks into them."""
        if array.base is None:
            return True
        # Held by `array` alone, and by the argument of getrefcount: nothing else can reach it.
        return type(array.base) is numpy.ndarray and array.base.base is None and sys.getrefcount(array.base) == 2
