"""Rows for the methods of immutable values: numbers, text, bytes, range, slice and the singletons.

In: the C types. Out: rows. These types are immutable, so "*" (all the rest) cannot hide a mutation; what
matters is which methods run Python through their arguments: an index, a buffer, an iterable, a format.
"""

from __future__ import annotations

import types

from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    iterator,
    pure,
    shell,
    special,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
# Text and bytes share their methods; these take numbers, which may come from a Python __index__.
TAKES_INDEX = (
    "__getitem__ __mul__ __rmul__ center ljust rjust zfill expandtabs split rsplit replace splitlines "
    "find rfind index rindex count startswith endswith"
)


def _numbers() -> None:
    pure(int, "__new__ from_bytes to_bytes __round__", calls_back=True)
    pure(float, "__new__ fromhex __round__ from_number", calls_back=True)
    deny(float, "__setformat__", code="SB006", why="changes how the process reads floats")
    pure(complex, "__new__ from_number", calls_back=True)
    pure(bool, "__new__", calls_back=True)
    special(bool, "__invert__", why="warns that it is deprecated, since 3.12")
    for owner in (int, float, complex, bool):
        attribute_slots(owner)
        shell(owner, "*")
        attributes(owner, "*", NativeClass.PURE_SHELL, fresh=True)


def _text() -> None:
    attribute_slots(str)
    deep(str, "__new__ __mod__ __rmod__ format format_map", calls_back=True, formats=True)
    pure(str, f"join translate maketrans encode {TAKES_INDEX}", calls_back=True)
    iterator(str, "__iter__", calls_back=False)
    shell(str, "*")


def _bytes() -> None:
    attribute_slots(bytes)
    deep(bytes, "__mod__ __rmod__", calls_back=True, formats=True)
    deep(bytes, "join", calls_back=True)
    iterator(bytes, "__iter__", calls_back=False)
    shell(bytes, "__len__ __hash__ __repr__ __str__ __sizeof__ __getnewargs__ __bytes__ capitalize lower upper "
          "title swapcase isalnum isalpha isascii isdigit islower isspace istitle isupper")  # fmt: skip
    # Every other argument is a buffer or an iterable, and both may be Python.
    pure(bytes, "*", calls_back=True)


def _ranges_and_slices() -> None:
    for owner in (range, slice):
        attribute_slots(owner)
        attributes(owner, "*", NativeClass.PURE_SHELL)
    shell(slice, "__new__")
    pure(range, "__new__ __getitem__", calls_back=True)
    pure(range, f"{COMPARISONS} __contains__ count index", calls_back=True, compares=True)
    iterator(range, "__iter__ __reversed__", calls_back=False)
    shell(range, "__len__ __bool__ __hash__ __repr__ __reduce__")
    deep(slice, f"{COMPARISONS} __hash__", calls_back=True, compares=True)
    deep(slice, "__repr__", calls_back=True, formats=True)
    pure(slice, "indices", calls_back=True)
    shell(slice, "__reduce__", fresh=None)


def _singletons() -> None:
    for owner in (types.NoneType, types.EllipsisType, types.NotImplementedType):
        attribute_slots(owner)
        shell(owner, "*")


_numbers()
_text()
_bytes()
_ranges_and_slices()
_singletons()
