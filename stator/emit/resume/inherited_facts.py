"""What a resume point knows from the segment before it.   n was a symbol at the break  ->  it is one after it

In: the values that are live at a graph break, and what the site has learned.  Out: the same knowledge in the terms of
the resume points, whose arguments those values are, so that a size that has been seen to change is not a constant
again after every break.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.emit.resume.advance import Advance
from stator.heap.box import Box
from stator.heap.heap import Heap
from stator.shapes.policy import Memory
from stator.shapes.symbolic_values import UNREAD, DeferredText
from stator.shapes.varying_values import HELD_TYPES
from stator.source import CallOf, Index, Key, Local, Pinned, Source, with_base

_NESTING = 3  # levels of fresh containers that are looked into
_DATA = frozenset({"SB002", "SB003", "SB004", "SB024"})  # breaks whose results differ from call to call


def pass_on(memory: Memory, heap: Heap, values: list[Any], advance: Advance, stop: Break) -> None:
    """Tell every point that `advance` may go on at."""
    for point, origins in advance.origins():
        known: Memory = point.compiled._stator_site.shapes.memory
        places: dict[Source, Source] = {}
        for number, origin in enumerate(origins):
            here = Local(point.names[number], number)
            if origin is not None:
                _note_value(known, heap, values[origin], here, places, _NESTING)
            elif stop.code in _DATA:
                known.numbers.add(here)
                if stop.stop.varying and not advance.takes_item:
                    known.unread.add(here)
        known.merge(memory, functools.partial(_moved, places=places))


def _note_value(known: Memory, heap: Heap, value: Any, here: Source, places: dict[Source, Source], depth: int) -> None:
    cls = type(value)
    if cls is torch.SymInt or cls is torch.SymFloat:
        known.numbers.add(here)
    elif cls in HELD_TYPES or cls is ndarray and heap.arrays.is_backed(value):
        known.contents.setdefault(here, set()).add(0)  # an input of the graph from the start
    elif cls in UNREAD and cls is not DeferredText:
        known.unread.add(here)
    elif cls is FakeTensor:
        dims = {dim for dim, size in enumerate(value.shape) if type(size) is torch.SymInt}
        if dims:
            known.sizes.setdefault(here, set()).update(dims)
    tracker = heap.by_standin.get(id(value))
    if cls is Box:
        places.setdefault(value.source(), here)
    elif tracker is not None:
        places.setdefault(tracker.source, here)
    elif depth and (cls is list or cls is tuple):
        for i, item in enumerate(value):
            _note_value(known, heap, item, Index(here, i), places, depth - 1)
    elif depth and cls is dict:
        for key, item in value.items():
            if type(key) is str:
                _note_value(known, heap, item, Key(here, key), places, depth - 1)


def _moved(source: Source, places: dict[Source, Source]) -> Source | None:
    """The source in the terms of the resume point; None where it is not reachable from there."""
    found = places.get(source)
    if found is not None or type(source) is Pinned:
        return found or source
    if type(source) is CallOf:
        moved = tuple(_moved(argument, places) for argument in source.args)
        return None if None in moved else CallOf(source.fn, moved)  # type: ignore[arg-type]
    if source.base is None:
        return None
    base = _moved(source.base, places)
    return None if base is None else with_base(source, base)
