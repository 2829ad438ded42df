"""Iterators from outside that can be copied: what they will yield, without taking it.

    iter({3, 1, 2}) after one step  ->  items_to_come(it, 10): [2, 3]

Sets, dicts of other classes than dict, deques, arrays and memoryviews of them, and the pools of itertools.  Copies and
the originals run no Python code: hashes and comparisons were made when the container was filled.
"""

from __future__ import annotations

import array
import collections
import itertools
from typing import Any

from stator import _hook
from stator.heap.pure_readers import container_behind, reduced, set_state

# Their `__reduce__` lists the items to come.
_LISTED: frozenset[type] = frozenset(map(type, (
    iter(set()), iter(collections.OrderedDict()), iter({}), iter({}.values()), iter({}.items()),
)))
_DEQUES: frozenset[type] = frozenset({type(iter(collections.deque())), type(reversed(collections.deque()))})
_ARRAY = type(iter(array.array("i")))
_MEMORY: type = type(iter(memoryview(b"")))
POOLS: frozenset[type] = frozenset({itertools.product, itertools.permutations, itertools.combinations,
                                    itertools.combinations_with_replacement})
COPIED = _LISTED | _DEQUES | POOLS | {_ARRAY, _MEMORY}


def can_be_copied(iterator: object) -> bool:
    """Whether a copy yields what the iterator would: not where its container has changed since."""
    cls = type(iterator)
    if cls in _DEQUES:
        return _hook.deque_stands(iterator)
    if cls is _MEMORY:
        return _is_readable(_hook.memory_iterator_parts(iterator))
    if cls in _LISTED:
        if type(container_behind(iterator)) is dict:  # looked into in another way (see iterators.WALKERS)
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
    """What the iterator walks; the pools of itertools are tuples of their own."""
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
    if cls is _MEMORY:
        return (bytearray, array.array)
    return (set, frozenset) if cls is _SET else (collections.deque,) if cls in _DEQUES else (array.array,) \
        if cls is _ARRAY else (dict,) if cls in _LISTED else ()


_SET: type = type(iter(set()))
