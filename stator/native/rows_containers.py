"""Rows for the methods of the builtin containers, their views and their iterators.

In: the C types. Out: rows. Each method of a mutable type is named: one that a later Python adds is refused
until somebody has read what it does.
"""

from __future__ import annotations

import types
from typing import Any

from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    iterator,
    mutates,
    pure,
    shell,
    special,
    type_of,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
ALLOCATION = "depends on how the object grew, which a shadow does not share"
PINNED = "its value is a window on memory that may change under it"


def _sequences() -> None:
    for owner in (list, tuple):
        attribute_slots(owner)
        deep(owner, f"{COMPARISONS} __hash__ __contains__ index count", calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        iterator(owner, "__iter__ __reversed__", calls_back=False)
        shell(owner, "__len__ __class_getitem__")
        pure(owner, "__getitem__ __add__ __mul__ __rmul__ __getnewargs__", calls_back=True, fresh=None)
    pure(tuple, "__new__", calls_back=True, fresh=None)
    shell(list, "__new__")
    mutates(list, "__init__", calls_back=True)
    pure(list, "copy")
    shell(list, "append", mutates=True)
    # What they do depends on how many items there are: no shells, whose length nobody guards.
    mutates(list, "clear reverse")
    mutates(list, "insert __delitem__", calls_back=True)
    mutates(list, "extend __setitem__", calls_back=True)
    mutates(list, "__iadd__ __imul__ pop", calls_back=True, fresh=None)
    mutates(list, "remove sort", calls_back=True, compares=True)
    deny(list, "__sizeof__", code="SB013", why=ALLOCATION)


def _dicts() -> None:
    attribute_slots(dict)
    shell(dict, "__new__ __len__ __class_getitem__")
    mutates(dict, "__init__ update", calls_back=True, compares=True)
    mutates(dict, "__delitem__ setdefault pop __ior__", calls_back=True, compares=True, fresh=None)
    mutates(dict, "popitem", fresh=None)
    shell(dict, "__setitem__", mutates=True, calls_back=True, compares=True)
    mutates(dict, "clear")  # which keys go is a fact
    pure(dict, "get __getitem__", calls_back=True, compares=True, fresh=None)
    pure(dict, "__contains__ __or__ __ror__ fromkeys", calls_back=True, compares=True)
    pure(dict, "copy")
    deep(dict, COMPARISONS, calls_back=True, compares=True)
    deep(dict, "__repr__", calls_back=True, formats=True)
    shell(dict, "keys values items", why="a live view")
    iterator(dict, "__iter__ __reversed__", calls_back=False)
    deny(dict, "__sizeof__", code="SB013", why=ALLOCATION)


def _sets() -> None:
    for owner in (set, frozenset):
        attribute_slots(owner)
        shell(owner, "__len__ __class_getitem__")
        deny(owner, "__sizeof__", code="SB013", why=ALLOCATION)
        deep(owner, f"{COMPARISONS} __hash__", calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        iterator(owner, "__iter__", calls_back=False)
        pure(owner, "__contains__ isdisjoint issubset issuperset", calls_back=True, compares=True)
        pure(
            owner,
            "__and__ __rand__ __or__ __ror__ __xor__ __rxor__ __sub__ __rsub__ difference intersection "
            "symmetric_difference union copy",
            calls_back=True,
            compares=True,
            fresh=True if owner is set else None,
        )
        special(owner, "__reduce__", why="hands out the instance's __dict__")
    pure(frozenset, "__new__", calls_back=True, compares=True, fresh=None)
    shell(set, "__new__")
    shell(set, "clear", mutates=True)
    mutates(set, "pop", fresh=None)
    mutates(
        set,
        "__init__ add discard remove update difference_update intersection_update symmetric_difference_update",
        calls_back=True,
        compares=True,
    )
    mutates(set, "__iand__ __ior__ __ixor__ __isub__", calls_back=True, compares=True, fresh=None)


def _buffers() -> None:
    attribute_slots(bytearray)
    shell(bytearray, "__new__ __len__ __repr__ __str__ capitalize lower upper title swapcase copy isalnum isalpha "
          "isascii isdigit islower isspace istitle isupper")  # fmt: skip
    deny(bytearray, "__sizeof__ __alloc__", code="SB013", why=ALLOCATION)
    special(bytearray, "__reduce__ __reduce_ex__", why="hands out the instance's __dict__")
    deep(bytearray, "__mod__ __rmod__", calls_back=True, formats=True)
    deep(bytearray, "join", calls_back=True)
    iterator(bytearray, "__iter__", calls_back=False)
    shell(bytearray, "clear reverse", mutates=True)
    mutates(bytearray, "__init__ append extend insert pop remove __setitem__ __delitem__ resize", calls_back=True)
    mutates(bytearray, "__iadd__ __imul__", calls_back=True, fresh=None)
    pure(
        bytearray,
        f"{COMPARISONS} __add__ __mul__ __rmul__ __contains__ __getitem__ center count decode endswith "
        "expandtabs find fromhex hex index ljust lstrip maketrans partition removeprefix removesuffix replace "
        "rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip translate zfill",
        calls_back=True,
    )
    attribute_slots(memoryview)
    shell(memoryview, "__len__ __repr__ __class_getitem__")
    pure(memoryview, f"{COMPARISONS} __new__ __getitem__ cast toreadonly", calls_back=True, fresh=None, why=PINNED)
    pure(memoryview, "__hash__ tobytes tolist hex __contains__ count index _from_flags", calls_back=True)
    iterator(memoryview, "__iter__", calls_back=False)
    mutates(memoryview, "__setitem__ __delitem__ release __enter__ __exit__", calls_back=True, fresh=None)
    attributes(memoryview, "*", NativeClass.PURE_SHELL)
    for owner in (bytes, bytearray, memoryview):
        special(owner, "__buffer__ __release_buffer__", why="keeps the memory pinned until it is released")


def _views() -> None:
    views = (type_of({}.keys()), type_of({}.items()), type_of({}.values()), types.MappingProxyType)
    for owner in views:
        attribute_slots(owner)
        shell(owner, "__len__ __class_getitem__")
        deep(owner, COMPARISONS, calls_back=True, compares=True)
        deep(owner, "__hash__", calls_back=True, compares=True)
        deep(owner, "__repr__ __str__", calls_back=True, formats=True)
        iterator(owner, "__iter__ __reversed__", calls_back=True)
        pure(owner, "__contains__ isdisjoint", calls_back=True, compares=True)
        pure(owner, "__and__ __rand__ __or__ __ror__ __xor__ __rxor__ __sub__ __rsub__", calls_back=True,
             compares=True)
        attributes(owner, "mapping", NativeClass.SPECIAL, why="hands out the mapping behind the view")
    proxy = types.MappingProxyType
    shell(proxy, "__new__", calls_back=True)
    pure(proxy, "__getitem__ get", calls_back=True, compares=True, fresh=None)
    pure(proxy, "copy", calls_back=True)
    shell(proxy, "keys values items", calls_back=True, fresh=None, why="a live view")
    deny(proxy, "__ior__", code="SB006", why="a mapping proxy refuses updates")


def declare_iterator(owner: type, calls_back: bool) -> None:
    """An iterator's own position is its only state; what it runs when advanced decides `calls_back`."""
    attribute_slots(owner)
    shell(owner, "__iter__", fresh=None, why="an iterator is its own iterator")
    mutates(owner, "__next__", calls_back=calls_back, fresh=None, why="advances itself")
    mutates(owner, "__setstate__", calls_back=True)
    shell(owner, "__length_hint__ __class_getitem__ __sizeof__", calls_back=calls_back)
    pure(owner, "__reduce__", fresh=None, calls_back=True, why="hands out what is left, and where")


def _iterators() -> None:
    class Sequence:
        def __getitem__(self, index: int) -> int:
            raise IndexError(index)

    plain = [iter([]), reversed([]), iter(()), iter({}), iter({}.values()), iter({}.items()), reversed({}),
             reversed({}.values()), reversed({}.items()), iter(set()), iter(""), iter("\u0100"), iter(b""),
             iter(bytearray()), iter(memoryview(b"")), iter(range(0)), iter(range(1 << 70))]  # fmt: skip
    for owner in dict.fromkeys(map(type, plain)):
        declare_iterator(owner, calls_back=False)
    lazy = [iter(Sequence()), iter(int, 0)]
    for owner in (*map(type, lazy), enumerate, reversed, zip, map, filter):
        declare_iterator(owner, calls_back=True)
        iterator(owner, "__new__")


def _namespaces_and_aliases() -> None:
    attribute_slots(types.SimpleNamespace)
    shell(types.SimpleNamespace, "__new__", why="its state is its __dict__")
    mutates(types.SimpleNamespace, "__init__", calls_back=True)
    deep(types.SimpleNamespace, COMPARISONS, calls_back=True, compares=True)
    deep(types.SimpleNamespace, "__repr__", calls_back=True, formats=True)
    special(types.SimpleNamespace, "__reduce__ __replace__", why="hands out the instance's __dict__")
    attributes(types.SimpleNamespace, "*", NativeClass.SPECIAL, why="hands out the instance's __dict__")

    for owner in (types.GenericAlias, types.UnionType):
        attribute_slots(owner)
        special(owner, "__call__ __instancecheck__ __subclasscheck__", why="asks the class behind the alias")
        deep(owner, f"{COMPARISONS} __hash__", calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        pure(owner, "__new__ __getitem__ __or__ __ror__ __mro_entries__ __reduce__ __dir__ __class_getitem__",
             calls_back=True)  # fmt: skip
        iterator(owner, "__iter__")
        attributes(owner, "*", NativeClass.PURE, calls_back=True)
    alias: Any = list[int]
    declare_iterator(type_of(iter(alias)), calls_back=False)


_sequences()
_dicts()
_sets()
_buffers()
_views()
_iterators()
_namespaces_and_aliases()
