"""numpy arrays in results and in effects.   an array of the trace  ->  fresh_array(array_0)

In: arrays made inside the trace (or views of outside ones), and the stand-ins of outside arrays.  Out: expressions
that make them anew, views as views of the same memory, and statements that copy changed contents back.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.emit.services import Rebuilder
from stator.heap.tracker import VariableTracker


def fix_storages(build: Rebuilder) -> None:
    """Make the arrays that the program has made and dropped: the storages below them cannot be resized any more."""
    fixed, memory_of = dict(build.recorder.log.fixed), build.recorder.propagation.memory_behind
    for array, fake in build.heap.arrays.backed.values():
        if id(array) in build.memo:
            fixed.pop(memory_of(fake), None)
    if not fixed:
        return
    standins = [tracker.standin for tracker in build.heap.trackers if type(tracker.standin) is FakeTensor]
    for fake in (*standins, *build.outputs):
        if type(fake) is FakeTensor and id(fake) not in build.recorder.classes \
                and fixed.pop(memory_of(fake), None) is not None:
            build.writer.line(f"{build.method('numpy')}({build.method('detach')}({build.tensor(fake)}))")


def rebuild_array(build: Rebuilder, value: Any) -> str:
    memory = build.heap.arrays
    if value.dtype.hasobject or value.dtype.kind == "V":
        raise Break("SB007", "an array of Python objects")
    if id(value) in memory.drawn:
        return build.outside(memory.drawn[id(value)])
    if id(value) in memory.backed:
        return build.variable(value, "array", build.numpy_of(memory.backed[id(value)][1]))
    if type(value.base) is numpy.ndarray:
        base = memory.root_of(value)
        known = build.heap.by_standin.get(id(base))
        offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        held = memory.views.get(id(value))
        if held is not None and held.version is None and not base.flags.forc:
            return build.variable(value, "array", build.numpy_of(held.fake))
        view = build.writer.constant(view_of, "view_of")
        if not base.flags.forc or known is not None and not known.exposed and id(base) not in memory.backed:
            raise Break("SB007", "a view of an array that is not in one piece")
        return build.variable(value, "array", (
            f"{view}({build.value(base)}, {value.dtype.str!r}, {value.shape!r}, {offset}, {value.strides!r}, "
            f"{value.flags.writeable})"))
    if value.base is not None:
        raise Break("SB007", f"an array on the memory of a {type(value.base).__name__}")
    kept = value.copy(order="K")
    build.kept.append(kept)
    made = build.writer.constant(fresh_array, "fresh_array")
    return build.variable(value, "array", f"{made}({build.writer.constant(kept, 'array')}, {value.flags.writeable})")


def write_array(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Copy the contents of a stand-in back, if the program changed them."""
    if not build.heap.faces.has_changed(tracker):
        return
    now = tracker.standin.copy(order="C")
    out.append(f"{build.writer.constant(numpy.copyto, 'copyto')}({build.outside(tracker.source)}, "
               f"{build.writer.constant(now, 'contents')})")


def fresh_array(contents: Any, writeable: bool) -> Any:
    made = contents.copy(order="K")
    if not writeable:
        made.flags.writeable = False
    return made


def view_of(base: Any, dtype: str, shape: tuple[int, ...], offset: int, strides: tuple[int, ...],
            writeable: bool) -> ndarray:
    """A view of the memory of an array in one piece."""
    memory = base if base.flags.c_contiguous else base.T
    made = numpy.ndarray(shape, numpy.dtype(dtype), memory, offset, strides)
    if not writeable:
        made.flags.writeable = False
    return made
