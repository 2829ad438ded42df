"""Changes of outside objects so far.   the heap, in the middle of a trace  ->  changed records, dying objects

Unsure means changed.  Objects that the trace has met die later than in eager; weak references, finalizers and callbacks
show that: such a death breaks.
"""

from __future__ import annotations

import collections
import gc
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stator.breaks import Break
from stator.heap.iterators.outside_iterators import ADOPTED, WALKERS
from stator.heap.iterators.peekable_iterators import list_changed
from stator.heap.pure_readers import bytes_of, reduced
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict, items_in_order, raw_members, slot_values
from stator.heap.services import Heap
from stator.heap.tracker import MOVING, Box, ShadowKind, VariableTracker, is_current, untouched
from stator.host.value_kinds import is_a, mro_of

_EMPTY_CELL = types.CellType()


def anything_changed(heap: Heap) -> bool:
    return any(scope.overlay for scope in heap.scopes.values()) or any(map(has_changed, heap.trackers))


def is_changed(heap: Heap, value: object) -> bool:
    """Whether the trace has changed this object or namespace from outside."""
    scope, tracker = heap.scopes.get(id(value)), heap.by_original.get(id(value))
    return scope is not None and bool(scope.overlay) or tracker is not None and has_changed(tracker)


def let_go(tracker: VariableTracker) -> list[Any]:
    """Objects that a user's place held, and holds no more."""
    if tracker.shape is ShadowKind.OBJECT and not has_changed(tracker):
        return []
    before = _initial_parts(tracker, tracker.shape in _CHANGING)
    held = [part for part in before if type(part.raw if type(part) is Box else part) not in CONSTANT_TYPES]
    if not held or not has_changed(tracker):
        return []
    now = {id(part) for part in _parts(tracker)}
    return [part.raw if type(part) is Box else part for part in held
            if id(part) not in now and not (type(part) is Box and part.forced and id(part.value) in now)]


def _initial_parts(tracker: VariableTracker, contents: bool = True) -> list[Any]:
    initial = tracker.initial if contents else None
    parts = [part for pair in initial.items() for part in pair] if type(initial) is dict \
        else list(initial) if type(initial) is list else [initial] if type(initial) is Box else []
    for places in (tracker.initial_dict if tracker.dict_owner is None else None, tracker.initial_slots):
        parts += [] if places is None else places.values()
    return parts


def fingerprint(heap: Heap) -> list[tuple[int, tuple[int, ...]]]:
    """Changed objects, to be compared with another such list: identities of objects and of their parts."""
    found = [(id(tracker), _contents(tracker) or tuple(map(id, _parts(tracker))))
             for tracker in heap.trackers if has_changed(tracker)]
    return found + [(id(scope), tuple(map(id, scope.overlay.values())))
                    for scope in heap.scopes.values() if scope.overlay]


def changed_trackers(heap: Heap) -> list[VariableTracker]:
    """The records of the objects that are changed now, among those that were written to."""
    found = [tracker for tracker in heap.changes.written.values() if has_changed(tracker)]
    heap.changes.written = {number: tracker for number, tracker in heap.changes.written.items()
                    if tracker.shape in MOVING or any(tracker is each for each in found)}
    return found


def _contents(tracker: VariableTracker) -> tuple[int, ...]:
    """Of what has bytes, or a position: a number that differs when they do."""
    if tracker.shape is ShadowKind.BUFFER or tracker.shape is ShadowKind.ARRAY:
        return (hash(bytes_of(tracker.standin)),)
    if tracker.shape is ShadowKind.PEEKABLE or tracker.shape is ShadowKind.ITERATOR:
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
        return [standin, *(None for _ in range(_writes_to(standin)))]
    if tracker.shape is ShadowKind.CELL:
        return [standin.cell_contents] if standin != _EMPTY_CELL else []
    parts = list((instance_dict(standin) or {}).values())
    if tracker.initial_slots:
        parts += [value for member, value in slot_values(standin, type(tracker.original)).items()
                  if member in tracker.initial_slots]
    if is_a(standin, dict):
        return parts + [part for pair in items_in_order(standin) for part in pair]
    if is_a(standin, (list, set, collections.deque)):
        return parts + list(raw_members(standin))
    return parts


def _writes_to(fake: torch.Tensor) -> int:
    """In-place operations count up from the first version of a fake; its `__torch_function__` does not see the read."""
    with torch._C.DisableTorchFunction():
        return fake._version


def has_changed(tracker: VariableTracker) -> bool:
    shape, standin = tracker.shape, tracker.standin
    if shape is ShadowKind.TENSOR:
        return bool(_writes_to(standin))
    if shape in CLASSED and type(standin) is not type(tracker.original):
        return True
    contents = _CONTENTS_CHANGED.get(shape)
    changed = shape not in _WITHOUT_CONTENTS if contents is None else contents(tracker)
    return changed or _attributes_changed(tracker)


def _dict_changed(tracker: VariableTracker) -> bool:
    if untouched(tracker.initial, tracker.standin):
        return False
    pairs, initial = list(items_in_order(tracker.standin)), tracker.initial
    return len(pairs) != len(initial) or any(
        key is not known or not is_current(box, item)
        for (key, item), (known, box) in zip(pairs, initial.items(), strict=True))


def _cell_changed(tracker: VariableTracker) -> bool:
    if tracker.standin == _EMPTY_CELL:
        return tracker.initial is not None
    return not is_current(tracker.initial, tracker.standin.cell_contents)


_CONTENTS_CHANGED: dict[ShadowKind, Callable[[VariableTracker], bool]] = {
    ShadowKind.LIST: list_changed, ShadowKind.DICT: _dict_changed, ShadowKind.CELL: _cell_changed,
    ShadowKind.SET: lambda tracker: tracker.table.is_changed(tracker.standin),
    ShadowKind.ARRAY: lambda tracker: tracker.exposed and bytes_of(tracker.standin) != bytes_of(tracker.original),
    ShadowKind.BUFFER: lambda tracker: bytes_of(tracker.standin) != tracker.initial,
}
_CHANGING = (ShadowKind.DICT, ShadowKind.LIST, ShadowKind.SET, ShadowKind.CELL)
CLASSED = (ShadowKind.OBJECT, ShadowKind.LIST, ShadowKind.DICT, ShadowKind.SET)  # their `__class__` can be assigned
_WITHOUT_CONTENTS = {ShadowKind.OBJECT, ShadowKind.TUPLE, ShadowKind.OPAQUE, ShadowKind.VALUE}


def _attributes_changed(tracker: VariableTracker) -> bool:
    if tracker.initial_dict is not None and tracker.dict_owner is None:
        own = instance_dict(tracker.standin)
        if own is None or not untouched(tracker.initial_dict, own) and (
                list(own) != list(tracker.initial_dict)
                or not all(is_current(box, own[name]) for name, box in tracker.initial_dict.items())):
            return True
    initial = tracker.initial_slots
    if initial is None:
        return False
    now = slot_values(tracker.standin, type(tracker.original))
    return now.keys() != initial.keys() or not all(is_current(initial[member], now[member]) for member in now)


PARTS_LIMIT = 200  # of a dying object, that are looked at
_SLACK = 2  # references that are nobody's for long: arguments, variables of ours
_LIVING = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.Tensor)
_TABLES = ("stator.", "torch._dynamo.", "torch.utils.weak", "torch._subclasses.", "torch._functorch.")


def anything_let_go(heap: Heap) -> bool:
    """Whether a place that held an object holds it no more: it may have been the last, and the object dead."""
    return next(_let_go(heap), None) is not None


def refuse_watched_deaths(heap: Heap) -> None:
    """Finalizers and weakref callbacks see the effects before them."""
    gone = {id(part): part for part in _let_go(heap)}
    if not gone:
        return
    ours = _references_of_ours(heap)
    places: dict[int, int] = {}
    for part in _let_go(heap):
        places[id(part)] = places.get(id(part), 0) + 1
    while gone:
        number, part = gone.popitem()
        if is_a(part, _LIVING) and not is_a(part, torch.Tensor):
            continue
        if sys.getrefcount(part) - ours.get(number, 0) - 2 <= places[number] + _SLACK and _death_is_seen(part, ours):
            raise Break("SB019", f"a {type(part).__name__} from outside is let go, and its death is seen: "
                        "a finalizer, or a weak reference with a callback")


def _let_go(heap: Heap) -> Iterator[Any]:
    for scope in heap.scopes.values():
        for name in scope.overlay:
            before = scope.namespace.get(name)
            if type(before) not in CONSTANT_TYPES:
                yield before
    for tracker in heap.trackers:
        if tracker.shape is not ShadowKind.TENSOR:
            yield from let_go(tracker)


def _references_of_ours(heap: Heap) -> dict[int, int]:
    counts: dict[int, int] = {}
    for tracker in heap.trackers:
        for part in (tracker.original, *_initial_parts(tracker)):
            number = id(part.raw) if type(part) is Box else id(part)
            counts[number] = counts.get(number, 0) + 1
    for image in itertools.chain([image for image, *_ in heap.replayed.objects.values()],
                                 [image for _, seen in heap.replayed.plays for image, _ in seen],
                                 [table for table, _ in heap.glanced],
                                 [owner for owner, *_ in heap.replayed.dicts.values()]):
        counts[id(image)] = counts.get(id(image), 0) + 1
    return counts


def _is_of_program(callback: object) -> bool:
    """Whether a callback belongs to the program or a library: Stator, torch.compile and torch keep tables."""
    return callback is not None and not (
        type(callback) is types.FunctionType and str(callback.__module__).startswith(_TABLES))


def callback_of(reference: object) -> Any:
    """Of a proxy, which passes every question on to what it shows, it is the one object that it holds."""
    if is_a(reference, weakref.ProxyTypes):
        return next(iter(gc.get_referents(reference)), None)
    return weakref.ref.__callback__.__get__(reference)  # type: ignore[attr-defined, misc]


def _death_is_seen(dying: object, ours: dict[int, int]) -> bool:
    """Whether it, or a part that dies with it, has a finalizer or a weak reference with a callback."""
    todo, seen = [dying], {id(dying)}
    while todo and len(seen) < PARTS_LIMIT:
        part = todo.pop()
        if any(type(base.__dict__.get("__del__")) is types.FunctionType for base in mro_of(type(part))) \
                or any(_is_of_program(callback_of(reference)) for reference in weakref.getweakrefs(part)):
            return True
        for inner in gc.get_referents(part):
            if id(inner) not in seen and not is_a(inner, _LIVING) and type(inner) not in CONSTANT_TYPES \
                    and sys.getrefcount(inner) - ours.get(id(inner), 0) <= 4 + _SLACK:
                seen.add(id(inner))
                todo.append(inner)
    return False
