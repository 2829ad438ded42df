"""Look into a functools.lru_cache without using it.   wrapper, arguments  ->  its key, the kept result or ABSENT

Calling the wrapper would count a hit, and fill it on a miss; what it keeps is read through the garbage collector's
view of it instead.  The functions here are also the pure readers of the guards (`CallOf`).
"""

from __future__ import annotations

import functools
import gc
from typing import Any

from stator.guards.guard import MISSING as ABSENT
from stator.guards.guard import is_constant


def _parts(wrapper: object) -> tuple[list[Any], dict[Any, Any], Any]:
    """The (key, result, type) triples of a bounded cache, the dict of either kind, the mark between args and kwargs.

    lru_cache_tp_traverse visits: the type, three for each link, the dict, the function, the mark, and four more.
    """
    found = gc.get_referents(wrapper)
    end = max(i for i, part in enumerate(found) if part is functools._CacheInfo)  # type: ignore[attr-defined]
    links, (table, _, mark, element) = found[1:end - 4], found[end - 4:end]
    if type(table) is not dict or len(links) % 3 or any(part is not element for part in links[2::3]):
        raise TypeError("an lru_cache of an unknown build")
    return links, table, mark


def table_of(wrapper: object) -> dict[Any, Any]:
    """The dict behind a cache, the same for as long as the wrapper lives: results, or links where it is bounded."""
    return _parts(wrapper)[1]


def key_of(wrapper: object, args: tuple[Any, ...], kwargs: dict[str, Any], typed: bool) -> Any:
    """The key under which a call's result is kept."""
    if not typed and not kwargs:
        if len(args) == 1 and type(args[0]) in (str, int):
            return args[0]
        return args
    key = args
    if kwargs:
        key = (*key, _parts(wrapper)[2], *(part for pair in kwargs.items() for part in pair))
    if typed:
        key = (*key, *map(type, args), *map(type, kwargs.values()))
    return key


def kept_result(wrapper: object, key: object) -> Any:
    links, table, _ = _parts(wrapper)
    if not links:
        return table.get(_unasked(key), ABSENT)
    if _unasked(key) not in table:
        return ABSENT
    for i in range(0, len(links), 3):
        if same_key(links[i], key):
            return links[i + 1]
    return ABSENT


def kept_or(wrapper: object, key: object, otherwise: object) -> Any:
    found = kept_result(wrapper, key)
    return otherwise if found is ABSENT else found


def is_kept(wrapper: object, key: object) -> bool:
    return _unasked(key) in table_of(wrapper)


def has_room(wrapper: Any, count: int) -> bool:
    """Whether `count` more results push nothing out."""
    info = wrapper.cache_info()
    return info.maxsize is None or info.currsize + count <= info.maxsize


class _Sought:
    """A key that is looked for: it compares itself with the keys of the table, so that theirs are not asked."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return same_key(self.key, other)


def _unasked(key: object) -> object:
    """A tuple's search would compare its items with those of another of the same hash."""
    return _Sought(key) if type(key) is tuple else key


def same_key(left: object, right: object) -> bool:
    """Whether two keys are equal; nobody's `__eq__` is asked."""
    if left is right:
        return True
    if type(left) is tuple and type(right) is tuple:
        return len(left) == len(right) and all(map(same_key, left, right))
    return is_constant(left) and is_constant(right) and left == right
