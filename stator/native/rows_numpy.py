"""Rows for numpy: dtypes and scalars are values; arrays are outside memory.

In: numpy, where it is installed. Out: rows. Arithmetic of scalars (np.float32, np.int64 ...) is pure. Arrays
hold memory that no guard covers, so their methods and the functions over them are refused for now.
"""

from __future__ import annotations

from typing import Any

from stator.native.rows_declare import (
    NativeClass,
    add,
    attribute_slots,
    attributes,
    deny,
    impure,
    is_c_type,
    optional_module,
    owner_name,
    pure,
    special,
)

ARRAY = "an array is outside memory, which no guard covers"


def _scalar_types(generic: type) -> list[type]:
    """numpy.generic and every C type below it, each once."""
    found: dict[type, None] = {}
    waiting = [generic]
    while waiting:
        owner = waiting.pop()
        if owner not in found and is_c_type(owner):
            found[owner] = None
            waiting += owner.__subclasses__()
    return list(found)


def _scalars(numpy: Any) -> None:
    for owner in _scalar_types(numpy.generic):
        attribute_slots(owner)
        deny(owner, "tofile dump", code="SB015")
        deny(owner, "setflags setfield __setstate__ __setitem__ resize fill put itemset", code="SB006")
        pure(owner, "*", calls_back=True)
        attributes(owner, "base data ctypes flat flags __array_interface__ __array_struct__",
                   NativeClass.IMPURE_READ, code="SB013", why="shows memory")  # fmt: skip
        attributes(owner, "*", NativeClass.PURE_SHELL)
        add(owner, owner_name(owner), NativeClass.PURE, {"calls_back": True, "fresh": True})


def _dtypes(numpy: Any) -> None:
    dtype = numpy.dtype
    attribute_slots(dtype)
    pure(numpy, "dtype", calls_back=True)
    special(dtype, "__setstate__", why="changes a dtype in place")
    pure(dtype, "*", calls_back=True)
    attributes(dtype, "*", NativeClass.PURE_SHELL)
    for owner in dict.fromkeys(value for value in vars(numpy.dtypes).values() if is_c_type(value)):
        attribute_slots(owner)
        pure(owner, "*", calls_back=True)
        add(owner, owner_name(owner), NativeClass.PURE, {"calls_back": True, "fresh": True})
    pure(numpy, "promote_types result_type can_cast min_scalar_type", calls_back=True)


def _arrays(numpy: Any) -> None:
    deny.whole_type(numpy.ndarray, code="SB005", why=ARRAY)
    deny(numpy, "ndarray nditer flatiter broadcast", code="SB005", why=ARRAY)
    special.whole_type(numpy.ufunc, why="pure on scalars; arrays are refused")
    for owner in (numpy.nditer, numpy.flatiter, numpy.broadcast, numpy.busdaycalendar):
        deny.whole_type(owner, code="SB005", why=ARRAY)
    deny(numpy, "*", code="SB005", why=ARRAY)


def _chance(numpy: Any) -> None:
    impure(numpy.random, "*")
    for owner in (value for value in vars(numpy.random).values() if is_c_type(value)):
        impure.whole_type(owner, why="its state advances")


_numpy = optional_module("numpy")
if hasattr(_numpy, "ndarray"):
    _scalars(_numpy)
    _dtypes(_numpy)
    _arrays(_numpy)
    _chance(_numpy)
