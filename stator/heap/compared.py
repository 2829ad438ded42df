"""Objects that are told apart by being other objects.   `o in [a, b]`, `{o, a}`, `d[o]`  ->  guards: o is not a, ...

In: what C code hashes or compares.  Out: guards that outside objects whose class has no `__eq__` of its own, and that
were found to be different, are still different ones.  That two places hold one object is guarded where it is adopted.
"""

from __future__ import annotations

import collections
import types
import weakref
from typing import Any

from stator.guards.guard import Kind
from stator.heap.raw_access import instance_dict, raw_members
from stator.heap.readers import DICT_VIEWS, mapping_behind, referent_of
from stator.heap.tracker import Shape
from stator.kinds import is_a
from stator.source import CallOf, Pinned, Source

_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_BOUND = (types.MethodType, types.MethodWrapperType, types.BuiltinMethodType)
_HASHED = (set, frozenset, dict)
_SHAPES = frozenset({Shape.OBJECT, Shape.OPAQUE})
_mro_of = type.__dict__["__mro__"].__get__
PAIRS = 32  # more are asked for in one guard


def note_compared(heap: Any, values: Any) -> None:
    """C code looks for the later values in the first, or compares what is in all of them."""
    if len(values) == 1:
        _guard(heap, identities(heap, values), [])
    else:
        sought = identities(heap, values[1:])
        if sought:
            _guard(heap, sought, identities(heap, values[:1]))


def note_made(heap: Any, container: Any) -> None:
    """C code has put things together by their hashes, from an iterator perhaps: those it kept are different ones."""
    if is_a(container, _HASHED):
        keys = identities(heap, dict.keys(container) if is_a(container, dict) else raw_members(container))
        if len(keys) > 1:
            _guard(heap, keys, [])


def identities(heap: Any, values: Any) -> list[Source]:
    """The places of the outside objects in `values`, and in containers there, that are equal to themselves alone."""
    found: dict[int, Source] = {}
    seen: set[int] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        cls = type(value)
        if cls in _BOUND:
            value = value.__self__
        elif is_a(value, weakref.ref):
            value = referent_of(value)
        elif is_a(value, types.SimpleNamespace):
            pending.extend((instance_dict(value) or {}).values())
        cls = type(value)
        if cls in DICT_VIEWS:
            value = mapping_behind(value)
        if is_a(value, _CONTAINERS) or is_a(value, dict):
            if id(value) not in seen:
                seen.add(id(value))
                pending.extend(dict.keys(value) if is_a(value, dict) else raw_members(value))
                if is_a(value, dict):
                    pending.extend(dict.values(value))
            continue
        source = _place(heap, value)
        if source is not None and (cls is types.FunctionType or _is_equal_to_itself_alone(cls)):
            found[id(value)] = source
    return list(found.values())


def _place(heap: Any, value: Any) -> Source | None:
    if type(value) is types.FunctionType:
        source = heap.sources.get(id(value))
        return None if type(source) is Pinned else source
    tracker = heap.by_standin.get(id(value))
    return None if tracker is None or tracker.shape not in _SHAPES else tracker.source


def _is_equal_to_itself_alone(cls: type) -> bool:
    for base in _mro_of(cls):
        if "__eq__" in base.__dict__:
            return base is object
    return False


def _guard(heap: Any, sought: list[Source], others: list[Source]) -> None:
    others = [source for source in others if source not in sought]
    if len(sought) * (len(sought) - 1) // 2 + len(sought) * len(others) > PAIRS:
        heap.guard(CallOf(Pinned(are_distinct), (*sought, *others)), Kind.FRESH_CALL, True)
        return
    for i, source in enumerate(sought):
        for other in (*sought[i + 1:], *others):
            heap.guard(source, Kind.NOT_ALIAS, other)


def are_distinct(*objects: Any) -> bool:
    """A pure reader for guards: whether no two are one."""
    return len(set(map(id, objects))) == len(objects)
