"""Pure readers: small functions that guards call again at every entry, through a `CallOf` source.

    CallOf(Pinned(reduced), (Local("it", 0),))   ->   (iter, ([1, 2, 3],), 1), without advancing `it`
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
import types
import weakref
from typing import Any

import numpy

from stator import _hook
from stator.breaks import Break
from stator.heap.raw_access import instance_dict
from stator.heap.services import Heap
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import BUILTIN_METHOD, dict_of_class, is_a
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import Source

_REVERSED: type = type(reversed([]))
BOUND = frozenset({types.MethodType, types.BuiltinFunctionType, BUILTIN_METHOD, types.MethodWrapperType})
_VIEW_BASES = (dict, set, frozenset)
# The classes of keys(), values() and items(), and what makes them of a dict.
DICT_VIEWS: dict[type, Any] = {type(method(cls())): method for cls in (dict, collections.OrderedDict)
                               for method in (cls.keys, cls.values, cls.items)}


def has_dict(value: functools.partial[object]) -> bool:
    """Whether a partial has a `__dict__`, which a read would make; C unfolds others."""
    return sum(type(part) is dict for part in gc.get_referents(value)) > 1


def held_dict(value: object) -> dict[str, Any] | None:
    """The instance dict of an object; None where a read would make it."""
    if type(value) is collections.OrderedDict and not gc.get_referents(value) \
            or type(value) is functools.partial and not has_dict(value):
        return None
    return instance_dict(value)


def reduced(iterator: object) -> tuple[Any, tuple[Any, ...], Any]:
    """Parts of a C iterator: a callable, its arguments, and the state to set (or None)."""
    try:
        parts = _hook.quietly(iterator.__reduce__)  # 3.12 and later warn for itertools
    except SystemError:  # of CPython, for a count that has come to the largest C integer in steps of one
        if type(iterator) is not itertools.count:
            raise
        parts = (itertools.count, (sys.maxsize,))
    if parts[0] is iter and type(iterator) is _REVERSED:  # one that is over
        return reversed, parts[1], None
    return parts[0], parts[1], parts[2] if len(parts) > 2 else None


def readable(*classes: type) -> frozenset[type]:
    """Those of the classes of iterators whose parts `reduced` returns: since 3.14, none of itertools."""
    return frozenset(cls for cls in classes if cls.__reduce__ is not object.__reduce__)


def set_state(iterator: Any, state: object) -> None:
    """Advance a C iterator to the position that `reduced` has read of another one."""
    _hook.quietly(iterator.__setstate__, state)


def container_behind(value: object) -> Any:
    """The dict or set that an iterator or a view walks; None once the iterator is exhausted."""
    return next((found for found in gc.get_referents(value) if issubclass(type(found), _VIEW_BASES)), None)


def mapping_behind(proxy: types.MappingProxyType[Any, Any]) -> Any:
    return gc.get_referents(proxy)[0]


def referent_of(reference: weakref.ref[Any]) -> Any:
    """The referent of a weak reference, or None when it died (a subclass's `__call__` does not run)."""
    return weakref.ref.__call__(reference)


def hashed_parts(value: object) -> tuple[object, ...] | None:
    """The objects that the hash of a value in C is made of; None where it has a hash of its own."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return tuple(value)  # type: ignore[arg-type]
    if isinstance(value, weakref.ref):
        referent = referent_of(value)
        return () if referent is None else (referent,)
    if kind in (types.GenericAlias, types.UnionType):
        return getattr(value, "__origin__", None), *value.__args__  # type: ignore[attr-defined]
    if kind is slice:
        return value.start, value.stop, value.step  # type: ignore[attr-defined]
    return None


def arguments_of(exc: BaseException) -> tuple[Any, ...]:
    """Arguments of an exception, past an `args` that its class defines."""
    return BaseException.args.__get__(exc)  # type: ignore[attr-defined]


def fields_of(exc: BaseException) -> tuple[Any, ...]:
    """C-level fields of an exception that its text shows beside the arguments: the name of a file, the reason."""
    fields = next((found for cls, found in _FIELDS.items() if is_a(exc, cls)), ())
    return tuple([field.__get__(exc) for field in fields])


_FIELDS: dict[type, tuple[Any, ...]] = {
    cls: tuple([field for field in vars(cls).values() if type(field) is types.MemberDescriptorType])
    for cls in (OSError, ImportError, SyntaxError, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)}


def traceback_of(exc: BaseException) -> types.TracebackType | None:
    """The traceback of an exception, past a `__traceback__` of its class."""
    return BaseException.__traceback__.__get__(exc)  # type: ignore[union-attr]


def put_traceback(exc: BaseException, traceback: types.TracebackType | None) -> None:
    BaseException.__traceback__.__set__(exc, traceback)  # type: ignore[union-attr]


def default_factory_of(mapping: collections.defaultdict[Any, Any]) -> Any:
    return collections.defaultdict.default_factory.__get__(mapping)  # type: ignore[misc, union-attr]


def plain_value(value: Any) -> Any:
    """The number or text inside an instance of a subclass of int, float, complex, str or bytes."""
    if issubclass(type(value), complex):
        return complex.__pos__(value)
    base = next(base for base in (int, float, str, bytes) if issubclass(type(value), base))
    return base.__getnewargs__(value)[0]  # type: ignore[attr-defined]


def bytes_of(buffer: Any) -> bytes:
    return buffer.tobytes() if type(buffer) is numpy.ndarray else memoryview(buffer).tobytes()


def entries_of_class(cls: type) -> dict[str, Any]:
    """Own entries of a class, by name; a copy, since its dict is not accessible."""
    return dict(names_of_class(cls))


def proxy_of_class(cls: type) -> Any:
    """The `__dict__` of a class, past its metaclass: a view, made anew at each read."""
    return dict_of_class(cls)


def _has_symbol(value: Any) -> bool:
    return type(value) in SYMBOLIC or is_a(value, tuple) and any(map(_has_symbol, tuple.__iter__(value)))


def hashed(heap: Heap, value: object, source: Source) -> Any:
    """Adopt a key or a member: its hash and equality look at every part of it."""
    heap.tables.hashing += 1  # numbers are not left open meanwhile: a symbol has no hash
    try:
        standin = heap.adopt(value, source)
        if is_a(standin, tuple):
            heap.expose_deep(standin)
    finally:
        heap.tables.hashing -= 1
    if is_a(standin, tuple) and _has_symbol(standin):
        raise Break("SB003", "a number left open, in a key or a member of a set")
    return standin
