"""Has the program changed anything outside yet?   the heap, in the middle of a trace  ->  True or False

Asked before code of the user's may run at replay (a stream or a handler written in Python), which could see in
what order things happened.  Unsure means True.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterator
from typing import Any

from stator.heap.blank_instances import CONSTANT_TYPES, slot_members
from stator.heap.box import Box
from stator.heap.iterators.outside_iterators import ADOPTED, WALKERS
from stator.heap.pure_readers import bytes_of, reduced
from stator.heap.raw_access import instance_dict, items_in_order, raw_members
from stator.heap.services import Heap
from stator.heap.tracker import MOVING, ShadowKind, VariableTracker
from stator.host.value_kinds import is_a

_EMPTY_CELL = types.CellType()


def anything_changed(heap: Heap) -> bool:
    return any(scope.overlay for scope in heap.scopes.values()) or any(map(_changed, heap.trackers))


def let_go(tracker: VariableTracker) -> list[Any]:
    """The objects that a place of the user's held, and holds no more."""
    before: list[Any] = []
    if tracker.shape is ShadowKind.DICT and tracker.initial is not None:
        before += [part for pair in tracker.initial.items() for part in pair]
    elif tracker.shape in (ShadowKind.LIST, ShadowKind.SET, ShadowKind.CELL) and tracker.initial is not None:
        before += [tracker.initial] if tracker.shape is ShadowKind.CELL else tracker.initial
    for places in (tracker.initial_dict if tracker.dict_owner is None else None, tracker.initial_slots):
        before += [] if places is None else places.values()
    held = [part for part in before if type(part.raw if type(part) is Box else part) not in CONSTANT_TYPES]
    if not held or not _changed(tracker):
        return []
    now = {id(part) for part in _parts(tracker)}
    return [part.raw if type(part) is Box else part for part in held
            if id(part) not in now and not (type(part) is Box and part.forced and id(part.value) in now)]


def fingerprint(heap: Heap) -> list[tuple[int, tuple[int, ...]]]:
    """What is changed now, to be compared with another such list: identities of objects and of their parts."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for tracker in heap.trackers:
        if _changed(tracker):
            found.append((id(tracker), _contents(tracker) or tuple(map(id, _parts(tracker)))))
    for scope in heap.scopes.values():
        if scope.overlay:
            found.append((id(scope), tuple(map(id, scope.overlay.values()))))
    return found


def changed_trackers(heap: Heap) -> list[VariableTracker]:
    """The records of the objects that are changed now, among those that were written to."""
    found = [tracker for tracker in heap.changes.written.values() if _changed(tracker)]
    heap.changes.written = {number: tracker for number, tracker in heap.changes.written.items()
                    if tracker.shape in MOVING or any(tracker is each for each in found)}
    return found


def _contents(tracker: VariableTracker) -> tuple[int, ...]:
    """Of what has bytes, or a position: a number that differs when they do."""
    if tracker.shape is ShadowKind.BUFFER or tracker.shape is ShadowKind.ARRAY:
        return (hash(bytes_of(tracker.standin)),)
    if tracker.shape is ShadowKind.UPCOMING or tracker.shape is ShadowKind.ITERATOR:
        return tuple(_positions(tracker.standin))
    return ()


def _positions(part: object) -> Iterator[int]:
    """Where an iterator stands, and those it draws from."""
    if type(part) is tuple:
        for item in part:
            yield from _positions(item)
    elif type(part) in (int, float):
        yield hash(part)
    elif type(part) in ADOPTED:
        yield from _positions(reduced(part))
    elif type(part) in WALKERS:
        yield operator.length_hint(part)
    else:
        yield id(part)


def _parts(tracker: VariableTracker) -> list[Any]:
    standin = tracker.standin
    if tracker.shape is ShadowKind.TENSOR:
        return [standin, *(None for _ in range(standin._version))]
    if tracker.shape is ShadowKind.CELL:
        return [standin.cell_contents] if standin != _EMPTY_CELL else []
    parts = list((instance_dict(standin) or {}).values())
    for member in tracker.initial_slots or ():
        try:
            parts.append(member.__get__(standin))
        except AttributeError:
            continue
    if is_a(standin, dict):
        return parts + [part for pair in items_in_order(standin) for part in pair]
    if is_a(standin, (list, set, collections.deque)):
        return parts + list(raw_members(standin))
    return parts


def _current(box: Any, value: Any) -> bool:
    return value is box or type(box) is Box and box.is_current(value)


def _changed(tracker: VariableTracker) -> bool:
    shape, standin, initial = tracker.shape, tracker.standin, tracker.initial
    if shape is ShadowKind.TENSOR:
        return bool(standin._version)  # in-place operations count up from the fake tensor's first version
    if shape in CLASSED and type(standin) is not type(tracker.original):
        return True
    if shape is ShadowKind.LIST:
        items = list(raw_members(standin))
        return len(items) != len(initial) or not all(map(_current, initial, items))
    if shape is ShadowKind.DICT:
        pairs = list(items_in_order(standin))
        if len(pairs) != len(initial) or any(
                key is not known or not _current(box, item)
                for (key, item), (known, box) in zip(pairs, initial.items(), strict=True)):
            return True
    elif shape is ShadowKind.SET:
        if tracker.table.is_changed(standin):
            return True
    elif shape is ShadowKind.CELL:
        try:
            return not _current(initial, standin.cell_contents)
        except ValueError:
            return initial is not None
    elif shape is ShadowKind.ARRAY:
        return tracker.exposed and bytes_of(standin) != bytes_of(tracker.original)
    elif shape is ShadowKind.BUFFER:
        return bytes_of(standin) != tracker.initial
    elif shape not in _WITHOUT_CONTENTS:
        return True
    return _attributes_changed(tracker)


CLASSED = (ShadowKind.OBJECT, ShadowKind.LIST, ShadowKind.DICT, ShadowKind.SET)  # their `__class__` can be assigned
_WITHOUT_CONTENTS = {ShadowKind.OBJECT, ShadowKind.TUPLE, ShadowKind.OPAQUE, ShadowKind.VALUE}


def _attributes_changed(tracker: VariableTracker) -> bool:
    if tracker.initial_dict is not None and tracker.dict_owner is None:
        own = instance_dict(tracker.standin)
        if own is None or list(own) != list(tracker.initial_dict) \
                or not all(_current(box, own[name]) for name, box in tracker.initial_dict.items()):
            return True
    if tracker.initial_slots is not None:
        for member in slot_members(type(tracker.original)):
            try:
                value = member.__get__(tracker.standin)
            except AttributeError:
                if member in tracker.initial_slots:
                    return True
                continue
            if member not in tracker.initial_slots or not _current(tracker.initial_slots[member], value):
                return True
    return False
