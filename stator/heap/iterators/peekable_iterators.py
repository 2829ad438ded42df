"""Iterators from outside, by what they will yield next.

    a list_iterator at any position  ->  an iterator over boxes of peek(it, 0), peek(it, 1), ...

What is guarded is that the next items are there and are what was read, never the position: a loop with a graph break
in its body is compiled once.  How many items the program took is written back by advancing the user's iterator.
"""

from __future__ import annotations

import itertools
import operator
import sys
from typing import Any

from stator import _core
from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.box import NO_KEY, Box
from stator.heap.iterators.copied_iterators import (
    COPIED,
    POOLS,
    WALKED,
    can_be_copied,
    container_copied,
    items_to_come,
    walked_by,
)
from stator.heap.iterators.items_ahead import AHEAD, ahead_of
from stator.heap.pure_readers import bytes_of, reduced
from stator.heap.raw_access import raw_members
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.host.value_kinds import is_a
from stator.source import CallOf, Pinned, Source

_LIST: type = type(iter([]))
_TUPLE: type = type(iter(()))
_RANGE, _LONG_RANGE = type(iter(range(0))), type(iter(range(1 << 70)))
SEQUENCES = frozenset({_LIST, _TUPLE, _RANGE, _LONG_RANGE})
_TEXTS = frozenset({type(iter("")), type(iter("\u0100")), type(iter(b""))})
COMPOSITES = frozenset({enumerate, zip, itertools.pairwise})
ENDLESS = frozenset({itertools.cycle})


def is_upcoming(iterator: object) -> bool:
    """Whether the items an iterator will yield can be looked at without taking them."""
    cls = type(iterator)
    if cls in SEQUENCES:
        return True
    if cls in COPIED:
        return can_be_copied(iterator)
    if cls in AHEAD:
        taken_before, inner, alone = ahead_of(iterator)
        return inner is None or alone and is_upcoming(inner)
    if cls is enumerate:
        inner = reduced(iterator)[1]
        # Held by the enumerate, by what it was reduced to, and as an argument: nobody else can advance it.
        return sys.getrefcount(inner[0]) == 3 and is_upcoming(inner[0])
    if cls in ENDLESS:
        _, inner, state = reduced(iterator)
        # Held as that of an enumerate; one made by reducing, for a cycle that has seen all its items, is held less.
        return sys.getrefcount(inner[0]) <= 3 and type(inner[0]) in SEQUENCES | _TEXTS \
            and bool(remaining(inner[0]) or state[0])
    if cls is zip:
        _, inner, state = reduced(iterator)
        # Its tuple is held by it, here, and as an argument: by more, where somebody else has reduced it.
        return state is None and (sys.getrefcount(inner) == 3 or not inner) \
            and all(sys.getrefcount(inner[i]) == 2 and is_upcoming(inner[i]) for i in range(len(inner)))
    return False


def is_known_ahead(heap: Heap, value: object) -> bool:
    """Whether a value stands for a user's iterator by its items alone: how many are left is no fact."""
    tracker = heap.by_standin.get(id(value)) if type(value) is _LIST else None
    return tracker is not None and tracker.shape is ShadowKind.UPCOMING


def posed_class(heap: Heap, value: object) -> type | None:
    """The class of the user's iterator that a list's iterator stands in for; None where it stands for its own kind."""
    if type(value) is not _LIST:
        return None
    if id(value) in heap.tables.walks:
        return type(iter(set()))
    tracker = heap.by_standin.get(id(value))
    if tracker is None or tracker.shape is not ShadowKind.UPCOMING or type(tracker.original) is _LIST:
        return None
    return type(tracker.original)


def walks(iterator: object, container: object) -> bool:
    """A pure reader for guards: whether an iterator draws from this very container."""
    return any(found is container for found in containers_behind(iterator))


def may_walk(cls: type, container: object) -> bool:
    """Whether an iterator of this class may draw from such a container."""
    if cls in COMPOSITES or cls in ENDLESS or cls in AHEAD:
        return is_a(container, (list, *WALKED))
    return is_a(container, list if cls is _LIST else walked_by(cls))


def containers_behind(iterator: object) -> list[Any]:
    """The lists, sets, dicts, deques and arrays that an iterator walks."""
    cls = type(iterator)
    if cls is _LIST:
        return [args[0]] if (args := reduced(iterator)[1]) else []
    if cls in COPIED:
        return container_copied(iterator)
    if cls in AHEAD:
        inner = ahead_of(iterator)[1]
        return [] if inner is None else containers_behind(inner)
    if cls is enumerate or cls in ENDLESS:
        return containers_behind(reduced(iterator)[1][0])
    if cls is zip:
        return [found for part in reduced(iterator)[1] for found in containers_behind(part)]
    return []


def refuse_changed(heap: Heap, tracker: VariableTracker) -> None:
    """The items to come are those of the start: a container that was changed since may hold others."""
    for container in containers_behind(tracker.original):
        known = heap.by_original.get(id(container))
        if known is None:
            continue
        if list_changed(known) if known.shape is ShadowKind.LIST else bytes_of(known.standin) != known.initial \
                if known.shape is ShadowKind.BUFFER else id(known) in heap.changes.written:
            raise Break("SB014", f"an iterator over a {type(container).__name__} that was changed")


def list_changed(tracker: VariableTracker) -> bool:
    items = list(raw_members(tracker.standin))
    return len(items) != len(tracker.initial) or not all(
        box is item or type(box) is Box and box.is_current(item)
        for box, item in zip(tracker.initial, items, strict=True))


def remaining(iterator: object) -> int:
    """How many items are left."""
    cls = type(iterator)
    if cls in ENDLESS:
        return sys.maxsize
    if cls is enumerate:
        return remaining(reduced(iterator)[1][0])
    if cls is zip:
        return min((remaining(part) for part in reduced(iterator)[1]), default=0)
    if cls in AHEAD:
        before, inner, _ = ahead_of(iterator)
        count = len(before) + (0 if inner is None else remaining(inner))
        return max(count - 1, 0) if cls is itertools.pairwise else count
    if cls in COPIED:
        return len(items_to_come(iterator, LOOKAHEAD))
    return operator.length_hint(iterator)


def at_least(iterator: object, count: int) -> bool:
    if type(iterator) in COPIED:
        return can_be_copied(iterator) and len(items_to_come(iterator, count)) == count
    return is_upcoming(iterator) and remaining(iterator) >= count


def peek(iterator: object, offset: int) -> Any:
    """The item `offset` places ahead."""
    cls = type(iterator)
    if cls in COPIED:
        return items_to_come(iterator, offset + 1)[offset]
    if cls in AHEAD:
        before, inner, _ = ahead_of(iterator)
        found = tuple(before[k] if k < len(before) else peek(inner, k - len(before)) for k in (offset, offset + 1)
                      [:2 if cls is itertools.pairwise else 1])
        return found if cls is itertools.pairwise else found[0]
    _, args, state = reduced(iterator)
    if cls is enumerate:
        return (args[1] + offset, peek(args[0], offset))
    if cls is zip:
        return tuple(peek(part, offset) for part in args)
    if cls in ENDLESS:
        return _peek_around(args[0], state[0], state[1], offset)
    return args[0][(state or 0) + offset]


def _peek_around(iterator: object, saved: list[Any], saved_all: bool, offset: int) -> Any:
    """A cycle yields what its iterator has left, then what it saved: all of it, or what it had saved before that."""
    left = remaining(iterator)
    if offset < left:
        return peek(iterator, offset)
    period = len(saved) + (0 if saved_all else left)
    place = (offset - left) % period
    return saved[place] if place < len(saved) else peek(iterator, place - len(saved))


def _lookahead(iterator: object) -> int:
    """How many items to come are looked at: of a cycle, that many rounds as no program takes in one call."""
    if type(iterator) not in ENDLESS:
        return min(remaining(iterator), LOOKAHEAD)
    _, inner, state = reduced(iterator)
    return min(_ROUNDS * (remaining(inner[0]) + len(state[0])), LOOKAHEAD)


def adopt_upcoming(heap: Heap, value: Any, source: Source, otherwise: Any) -> Any:
    """A stand-in that yields boxes of the items to come; `otherwise` adopts what cannot be looked into."""
    tracker = heap.known(value, source)
    if tracker is not None:
        return tracker.standin
    if not is_upcoming(value):
        return otherwise(value, source)
    heap.guard(source, Kind.TYPE, type(value))
    items: list[Any] = [Box(heap, item, _itself, CallOf(Pinned(peek), (source, Pinned(k))), NO_KEY)
                        for k, item in enumerate(_items(value, _lookahead(value)))]
    tracker = heap.register(VariableTracker(iter(items), value, source, ShadowKind.UPCOMING))
    tracker.initial = items
    tracker.type_guarded = True
    return tracker.standin


LOOKAHEAD = 100_000
_ROUNDS = 64


def _items(iterator: object, count: int) -> Any:
    return items_to_come(iterator, count) if type(iterator) in COPIED else (peek(iterator, k) for k in range(count))


def _itself(base: Source) -> Source:
    return base


def is_endless(tracker: VariableTracker) -> bool:
    return tracker.shape is ShadowKind.UPCOMING and type(tracker.original) in ENDLESS


def taken(tracker: VariableTracker) -> int:
    """How many items the program has taken so far."""
    return len(tracker.initial) - operator.length_hint(tracker.standin)


def is_exhausted(tracker: VariableTracker) -> bool:
    """Whether the program saw the end: a list's iterator then lets go of its list."""
    # An exhausted list_iterator has no position; one over an empty list that nobody asked yet has position 0.
    return reduced(tracker.standin)[2] is None


def note_next(heap: Heap, tracker: VariableTracker) -> None:
    """The program asks for the next item: that there is one, or that there is none, becomes a fact."""
    refuse_changed(heap, tracker)
    count = taken(tracker)
    if count == len(tracker.initial):
        if type(tracker.original) in ENDLESS:
            raise Break("SB014", f"more than {_ROUNDS} rounds of a cycle from outside")
        if count == LOOKAHEAD:
            raise Break("SB014", f"an iterator of more than {LOOKAHEAD:,} items, from outside")
    reader = _core.at_least if type(tracker.original) in SEQUENCES else at_least  # the type is guarded
    enough = count < len(tracker.initial)
    heap.guard(CallOf(Pinned(reader), (tracker.source, Pinned(count + 1))), Kind.FRESH_CALL, enough)


def expose_upcoming(heap: Heap, tracker: VariableTracker) -> None:
    """C code will take the rest: all of it is read, and that it is all becomes a fact."""
    refuse_changed(heap, tracker)
    if type(tracker.original) in ENDLESS:
        raise Break("SB014", "a cycle from outside, inside another iterator")
    first, count = taken(tracker), len(tracker.initial)
    if count == LOOKAHEAD:
        raise Break("SB014", f"an iterator of more than {LOOKAHEAD:,} items, from outside")
    for k in range(first, count):
        item = tracker.initial[k]
        if type(item) is Box:
            tracker.initial[k] = item.force()
        if type(tracker.original) in COMPOSITES | POOLS:  # a tuple of its own
            heap.expose(tracker.initial[k])
    heap.guard(CallOf(Pinned(remaining), (tracker.source,)), Kind.FRESH_CALL, count)
