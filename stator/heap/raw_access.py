"""Look into an object past what its class overrides.   an instance of any class  ->  its dict, its members

    instance_dict(module)  ->  the real `__dict__`, though the class may define a property of that name

Nothing here runs code of the program.  What is worked out about a class is remembered until forget_classes().
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterator
from typing import Any

from stator.breaks import Break
from stator.heap.blank_instances import MEMOS, cached_by_class

_GETTERS: dict[type, tuple[tuple[type, ...], Any]] = {}
_mro_of = type.__dict__["__mro__"].__get__
_RAW_ITER: dict[type, Any] = {list: list.__iter__, tuple: tuple.__iter__, set: set.__iter__,
                              frozenset: frozenset.__iter__, collections.deque: collections.deque.__iter__}


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The real instance dict, whatever the class says about `__dict__`."""
    getter = _dict_getter(type(value))
    return None if getter is None else getter(value)


def set_instance_dict(value: Any, namespace: dict[str, Any]) -> None:
    """Give an object this very dict."""
    found = next(base.__dict__["__dict__"] for base in _mro_of(type(value))
                 if type(base.__dict__.get("__dict__")) is types.GetSetDescriptorType)
    found.__set__(value, namespace)


def _dict_getter(cls: type) -> Any:
    mro = _mro_of(cls)
    known = _GETTERS.get(cls)
    if known is not None and known[0] is mro:  # the bases of a class can be assigned
        return known[1]
    if len(_GETTERS) > 4096:  # bounded: a trace may make classes of its own
        _GETTERS.clear()
    getter = None
    for base in mro:
        found = base.__dict__.get("__dict__")
        if type(found) is types.GetSetDescriptorType or base is types.SimpleNamespace:
            getter = found.__get__
            break
    _GETTERS[cls] = (mro, getter)
    return getter


def raw_members(container: Any) -> Iterator[Any]:
    """The members of a list, tuple, set, frozenset or deque, whatever its class says about `__iter__`."""
    return _RAW_ITER[_container_base(type(container))](container)


def raw_store(container: Any, index: int, value: object) -> None:
    """Overwrite an item of a list or deque, whatever its class says about `__setitem__`."""
    base: Any = _container_base(type(container))
    base.__setitem__(container, index, value)


@cached_by_class
def _container_base(cls: type) -> type:
    for base in cls.__mro__:
        if base in _RAW_ITER:
            return base
    raise TypeError(cls)


def forget_classes() -> None:
    """Drop what was worked out about classes: it holds them, and a class may be as short-lived as its function."""
    _GETTERS.clear()
    for memo in MEMOS:
        memo.cache_clear()


def items_in_order(value: Any) -> Any:
    """An OrderedDict keeps an order of its own beside its table's: `move_to_end` changes only that."""
    if not issubclass(type(value), collections.OrderedDict):
        return dict.items(value)
    held = {id(key): item for key, item in dict.items(value)}
    try:
        order = list(collections.OrderedDict.__iter__(value))
    except KeyError:
        raise Break("SB013", "an OrderedDict that does not find one of its keys again") from None
    if len(order) != len(held) or any(id(key) not in held for key in order):
        raise Break("SB013", "an OrderedDict that was written to as a plain dict")
    return [(key, held[id(key)]) for key in order]
