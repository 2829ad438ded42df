"""Iterators from outside, by the items they will yield next.

    a list_iterator at any position  ->  an iterator over boxes of peek(it, 0), peek(it, 1), ...

Guarded are the next items, never the position.  Write-back advances the user's iterator.  Iterators over sets, deques,
arrays and memoryviews, and pools of itertools, are copied to read their items.
"""

from __future__ import annotations

import array
import collections
import itertools
import operator
import sys
from typing import Any

from stator import _core, _hook
from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.pure_readers import bytes_of, container_behind, readable, reduced, set_state
from stator.heap.raw_access import raw_members
from stator.heap.services import Heap
from stator.heap.tracker import NO_KEY, Box, ShadowKind, VariableTracker, is_current
from stator.host.value_kinds import is_a
from stator.source import CallOf, Pinned, Source

_TEE: type = type(itertools.tee([])[0])
TEE_DATA: type = getattr(itertools, "_tee_dataobject")
AHEAD: frozenset[type] = readable(_TEE) | {itertools.pairwise}


def ahead_of(iterator: object) -> tuple[list[Any], Any, bool]:
    """The items it holds, the iterator that it takes more from (None at its end), and whether that is its alone."""
    if type(iterator) is itertools.pairwise:
        parts = _hook.pairwise_parts(iterator)
        if not parts:
            return [], None, True
        alone = sys.getrefcount(parts[0]) == 3  # held by it, by the parts, and as an argument
        return list(parts[1:]), parts[0], alone
    data, index = reduced(iterator)[2]
    held: list[Any] = []
    count = 1  # of the blocks of items, each of which holds the iterator
    while (block := reduced(data)[1])[2] is not None:
        held += block[1]
        data, count = block[2], count + 1
    held += block[1]
    alone = sys.getrefcount(block[0]) == count + 2  # before the result below holds it
    return held[index:], block[0], alone


# Their `__reduce__` lists the items to come.
_LISTED: frozenset[type] = frozenset(map(type, (
    iter(set()), iter(collections.OrderedDict()), iter({}), iter({}.values()), iter({}.items()),
)))
_DEQUES: frozenset[type] = frozenset({type(iter(collections.deque())), type(reversed(collections.deque()))})
_ARRAY = type(iter(array.array("i")))
_MEMORY: type = type(iter(memoryview(b"")))
POOLS: frozenset[type] = readable(itertools.product, itertools.permutations, itertools.combinations,
                                  itertools.combinations_with_replacement)
COPIED = _LISTED | _DEQUES | POOLS | {_ARRAY, _MEMORY}


def can_be_copied(iterator: object) -> bool:
    """Whether a copy yields what the iterator would: not where its container has changed since."""
    if type(iterator) in _DEQUES:
        return _hook.deque_stands(iterator)
    if type(iterator) is _MEMORY:
        return _is_readable(_hook.memory_iterator_parts(iterator))
    if type(iterator) in _LISTED:
        if type(container_behind(iterator)) is dict:  # see outside_iterators.WALKERS
            return False
        try:
            reduced(iterator)
        except RuntimeError:  # changed size, or mutated, during iteration
            return False
    return True


def items_to_come(iterator: object, count: int) -> list[Any]:
    """At most `count` of the next items."""
    if type(iterator) is _MEMORY:
        parts = _hook.memory_iterator_parts(iterator)
        return parts[0][parts[1]:parts[1] + count].tolist() if parts else []
    make, args, state = reduced(iterator)
    if type(iterator) in _LISTED:
        return args[0][:count]
    copy = make(*args)
    if state is not None:
        set_state(copy, state)
    return list(itertools.islice(copy, count))


def container_copied(iterator: object) -> list[Any]:
    """The container of an iterator; the pools of itertools are tuples of their own."""
    cls = type(iterator)
    if cls in POOLS:
        return []
    if cls is _MEMORY:
        return [parts[0].obj] if (parts := _hook.memory_iterator_parts(iterator)) else []
    if cls in _LISTED:
        found = container_behind(iterator)
        return [] if found is None else [found]
    return [reduced(iterator)[1][0]]


def _is_readable(parts: tuple[Any, ...]) -> bool:
    """Whether a memoryview shows bytes or an array, item by item."""
    if not parts:
        return True
    try:
        return type(parts[0].obj) in _BUFFERS and parts[0].ndim == 1 and parts[0][:0].tolist() == []
    except (ValueError, NotImplementedError):  # it was released; its items are no numbers
        return False


_BUFFERS = frozenset({bytes, bytearray, array.array})
WALKED: tuple[type, ...] = (set, frozenset, dict, collections.deque, array.array, bytearray)


def walked_by(cls: type) -> tuple[type, ...]:
    """The containers that iterators of this class walk."""
    walked: dict[type, tuple[type, ...]] = {
        _MEMORY: (bytearray, array.array), type(iter(set())): (set, frozenset), _ARRAY: (array.array,),
        **dict.fromkeys(_DEQUES, (collections.deque,))}
    return walked.get(cls) or ((dict,) if cls in _LISTED else ())


_LIST: type = type(iter([]))
_TUPLE: type = type(iter(()))
_RANGE, _LONG_RANGE = type(iter(range(0))), type(iter(range(1 << 70)))
SEQUENCES = frozenset({_LIST, _TUPLE, _RANGE, _LONG_RANGE})
_TEXTS = frozenset({type(iter("")), type(iter("\u0100")), type(iter(b""))})
COMPOSITES = frozenset({enumerate, zip, itertools.pairwise})
ENDLESS = readable(itertools.cycle)


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
        parts = reduced(iterator)
        # Its tuple is held by it, by the parts, and as an argument: by more, where somebody else has reduced it.
        return parts[2] is None and (sys.getrefcount(parts[1]) == 3 or not parts[1]) \
            and all(sys.getrefcount(parts[1][i]) == 2 and is_upcoming(parts[1][i]) for i in range(len(parts[1])))
    return False


def is_known_ahead(heap: Heap, value: object) -> bool:
    """Whether a value stands for a user's iterator by its items alone: how many are left is no fact."""
    tracker = heap.by_standin.get(id(value)) if type(value) is _LIST else None
    return tracker is not None and tracker.shape is ShadowKind.PEEKABLE


def posed_class(heap: Heap, value: object) -> type | None:
    """The class of the user's iterator that a list's iterator stands in for; None where it stands for its own kind."""
    if type(value) is not _LIST:
        return None
    if id(value) in heap.tables.walks:
        return type(iter(set()))
    tracker = heap.by_standin.get(id(value))
    if tracker is None or tracker.shape is not ShadowKind.PEEKABLE or type(tracker.original) is _LIST:
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
        if known is not None and (
                list_changed(known) if known.shape is ShadowKind.LIST else bytes_of(known.standin) != known.initial
                if known.shape is ShadowKind.BUFFER else id(known) in heap.changes.written):
            raise Break("SB014", f"an iterator over a {type(container).__name__} that was changed")


def list_changed(tracker: VariableTracker) -> bool:
    items = list(raw_members(tracker.standin))
    return len(items) != len(tracker.initial) or not all(map(is_current, tracker.initial, items))


def remaining(iterator: object) -> int:
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


def adopt_peekable(heap: Heap, value: object, source: Source, otherwise: Any) -> Any:
    """A stand-in that yields boxes of the items to come; `otherwise` adopts what cannot be looked into."""
    if (known := heap.known(value, source)) is not None:
        return known.standin
    if not is_upcoming(value):
        return otherwise(value, source)
    heap.guard(source, Kind.TYPE, type(value))
    count = _lookahead(value)
    items_ahead = items_to_come(value, count) if type(value) in COPIED else (peek(value, k) for k in range(count))
    items: list[Any] = [Box(heap, item, _itself, CallOf(Pinned(peek), (source, Pinned(k))), NO_KEY)
                        for k, item in enumerate(items_ahead)]
    tracker = heap.register(VariableTracker(iter(items), value, source, ShadowKind.PEEKABLE, items))
    tracker.type_guarded = True
    return tracker.standin


LOOKAHEAD = 100_000
_ROUNDS = 64


def _itself(base: Source) -> Source:
    return base


def is_endless(tracker: VariableTracker) -> bool:
    return tracker.shape is ShadowKind.PEEKABLE and type(tracker.original) in ENDLESS


def taken(tracker: VariableTracker) -> int:
    return len(tracker.initial) - operator.length_hint(tracker.standin)


def is_exhausted(tracker: VariableTracker) -> bool:
    """Whether the program saw the end: an exhausted list_iterator has no position."""
    return reduced(tracker.standin)[2] is None


def note_next(heap: Heap, tracker: VariableTracker) -> None:
    """The program asks for the next item: that there is one, or that there is none, becomes a fact."""
    refuse_changed(heap, tracker)
    count = taken(tracker)
    at_end = count == len(tracker.initial)
    if at_end and type(tracker.original) in ENDLESS:
        raise Break("SB014", f"more than {_ROUNDS} rounds of a cycle from outside")
    if at_end and count == LOOKAHEAD:
        raise Break("SB014", f"an iterator of more than {LOOKAHEAD:,} items, from outside")
    reader = _core.at_least if type(tracker.original) in SEQUENCES else at_least  # the type is guarded
    heap.guard_call(reader, not at_end, tracker.source, Pinned(count + 1))


def expose_peekable(heap: Heap, tracker: VariableTracker) -> None:
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
    heap.guard_call(remaining, count, tracker.source)
