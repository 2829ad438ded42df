"""Objects of the user's that die when the effects are written back.   holder.clear(); ref()  ->  None in eager

A trace keeps what it has met alive, and writes the effects back at the end: an object dies later than it would.  That
can be seen by who asks a weak reference, and by finalizers and callbacks, which run at another time.
"""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from stator.breaks import Break
from stator.heap.blank_instances import CONSTANT_TYPES
from stator.heap.box import Box
from stator.heap.outside_changes import let_go
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import is_a

PARTS_LIMIT = 200  # of a dying object, that are looked at
_SLACK = 2  # references that are nobody's for long: arguments, variables of ours
_LIVING = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.Tensor)
_TABLES = ("stator.", "torch._dynamo.", "torch.utils.weak", "torch._subclasses.", "torch._functorch.")
_mro_of = type.__dict__["__mro__"].__get__


def anything_let_go(heap: Heap) -> bool:
    """Whether a place that held an object holds it no more: it may have been the last, and the object dead."""
    return next(_let_go(heap), None) is not None


def refuse_watched_deaths(heap: Heap) -> None:
    """A finalizer, or who is told of a death, sees what the program had done by then."""
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
    """How often the trace itself holds each of the user's objects."""
    counts: dict[int, int] = {}
    for tracker in heap.trackers:
        held: list[Any] = [tracker.original]
        if tracker.shape is ShadowKind.DICT:
            held += [*tracker.initial, *tracker.initial.values()]
        elif type(tracker.initial) is list:
            held += tracker.initial
        elif type(tracker.initial) is Box:
            held.append(tracker.initial)
        for places in (tracker.initial_dict if tracker.dict_owner is None else None, tracker.initial_slots):
            held += [] if places is None else places.values()
        for part in held:
            number = id(part.raw) if type(part) is Box else id(part)
            counts[number] = counts.get(number, 0) + 1
    for image in itertools.chain([image for image, *_ in heap.replayed.objects.values()],
                                 [image for _, seen in heap.replayed.plays for image, _ in seen],
                                 [table for table, _ in heap.glanced],
                                 [owner for owner, *_ in heap.replayed.dicts.values()]):
        counts[id(image)] = counts.get(id(image), 0) + 1
    return counts


def _tells_somebody(callback: object) -> bool:
    """Whether a callback is the program's or a library's, not one of Stator's or of torch.compile's, which keeps a
    table of every module once it was used; nor one of torch's, which keeps tables of tensors."""
    return callback is not None and not (
        type(callback) is types.FunctionType and str(callback.__module__).startswith(_TABLES))


def _callback_of(reference: object) -> Any:
    """Of a proxy, which passes every question on to what it shows, it is the one object that it holds."""
    if is_a(reference, weakref.ProxyTypes):
        return next(iter(gc.get_referents(reference)), None)
    return weakref.ref.__callback__.__get__(reference)  # type: ignore[attr-defined, misc]


def _death_is_seen(dying: object, ours: dict[int, int]) -> bool:
    """Whether it, or a part that dies with it, has a finalizer or a weak reference with a callback."""
    todo, seen = [dying], {id(dying)}
    while todo and len(seen) < PARTS_LIMIT:
        part = todo.pop()
        if any(type(base.__dict__.get("__del__")) is types.FunctionType for base in _mro_of(type(part))) \
                or any(_tells_somebody(_callback_of(reference)) for reference in weakref.getweakrefs(part)):
            return True
        for inner in gc.get_referents(part):
            if id(inner) not in seen and not is_a(inner, _LIVING) and type(inner) not in CONSTANT_TYPES \
                    and sys.getrefcount(inner) - ours.get(id(inner), 0) <= 4 + _SLACK:
                seen.add(id(inner))
                todo.append(inner)
    return False
