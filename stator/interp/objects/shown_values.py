"""Parts of a value that its text shows.   repr(operator.itemgetter(x))  ->  x

In: a value with a `__repr__` of C code.  Out: the values whose own texts stand in its text.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import operator
import types
from typing import Any

from stator.heap.pure_readers import DICT_VIEWS, mapping_behind
from stator.host.value_kinds import is_a

_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_HOLDERS = frozenset({operator.itemgetter, operator.methodcaller, itertools.repeat, staticmethod, classmethod})


def parts_shown(value: Any) -> list[Any]:
    """Parts of a value that its C repr shows by their own repr."""
    if is_a(value, _CONTAINERS):
        return list(next(base for base in _CONTAINERS if is_a(value, base)).__iter__(value))
    if is_a(value, dict):
        return [part for pair in dict.items(value) for part in pair]
    cls = type(value)
    if cls is types.MethodType:
        return [value.__self__, value.__func__]
    if cls is types.MappingProxyType or cls in DICT_VIEWS:
        return [mapping_behind(value)]
    if cls is slice:
        return [value.start, value.stop, value.step]
    if cls is types.GenericAlias or cls is types.UnionType:
        return [getattr(value, "__origin__", None), *value.__args__]
    if cls is types.SimpleNamespace:
        return list(vars(value).values())
    if cls is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if cls in _HOLDERS:
        return gc.get_referents(value)
    return list(value.args) if is_a(value, BaseException) else []
