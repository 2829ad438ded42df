"""Rows for the C modules of values: dates, decimals, arrays, clocks and random numbers.

In: the modules. Out: rows. Dates are immutable and pure; whatever reads a clock, the time zone, the decimal
context or a random state is not.
"""

from __future__ import annotations

import _datetime
import _decimal
import _random
import array
import time

from stator.native.rows_containers import declare_iterator
from stator.native.rows_declare import (
    NativeClass,
    attribute_slots,
    attributes,
    deep,
    deny,
    impure,
    is_c_type,
    iterator,
    mutates,
    pure,
    shell,
    type_of,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
TIME_ZONE = "reads the time zone of the process"
GUARDED_CONTEXT = "the settings of the decimal context are guarded, its flags written back"
DECIMAL_CONTEXT = "reads the decimal context, and leaves its flags there"


def declare_named_fields(owner: type) -> None:
    """A C struct sequence (time.struct_time, sys.version_info): a tuple with names."""
    attribute_slots(owner)
    pure(owner, "__new__ __replace__", calls_back=True)
    deep(owner, "__repr__", calls_back=True, formats=True)
    shell(owner, "__reduce__", fresh=None)
    attributes(owner, "*", NativeClass.PURE_SHELL)


def _dates() -> None:
    owners = dict.fromkeys(value for value in vars(_datetime).values() if is_c_type(value))
    pure(_datetime, "*", calls_back=True)
    for owner in owners:
        attribute_slots(owner)
        impure(owner, "now utcnow today")
        impure(owner, "fromtimestamp timestamp astimezone", why=TIME_ZONE)
        pure(owner, "*", calls_back=True)
        attributes(owner, "*", NativeClass.PURE_SHELL, why="dates are immutable")
    calendar = type_of(_datetime.date(2000, 1, 1).isocalendar())
    attribute_slots(calendar)
    pure(calendar, "*", calls_back=True)
    attributes(calendar, "*", NativeClass.PURE_SHELL)


def _decimals() -> None:
    decimal = _decimal.Decimal
    attribute_slots(decimal)
    pure(decimal, "is_canonical is_finite is_infinite is_nan is_qnan is_snan is_signed is_zero adjusted canonical "
         "conjugate radix copy_abs copy_negate as_tuple as_integer_ratio __bool__ __hash__ __int__ __float__ "
         "__ceil__ __floor__ __trunc__ __complex__ __sizeof__ __repr__ __str__")  # fmt: skip
    for name in "add sub mul truediv floordiv mod divmod pow".split():
        pure(decimal, f"__{name}__ __r{name}__", why=GUARDED_CONTEXT)
    pure(decimal, f"{COMPARISONS} __neg__ __pos__ __abs__ __round__", why=GUARDED_CONTEXT)
    shell(decimal, "__copy__ __deepcopy__", fresh=None)
    attributes(decimal, "*", NativeClass.PURE_SHELL)
    impure(decimal, "*", why=DECIMAL_CONTEXT)
    impure.whole_module(_decimal, why=DECIMAL_CONTEXT)
    impure.whole_type(type_of(_decimal.localcontext()), why=DECIMAL_CONTEXT)
    context = _decimal.getcontext()
    impure.whole_type(type_of(context.flags), why=DECIMAL_CONTEXT)


def _arrays() -> None:
    owner = array.array
    attribute_slots(owner)
    pure(array, "array _array_reconstructor", calls_back=True)
    pure(owner, f"__new__ {COMPARISONS} __contains__ count index __getitem__ __add__ __mul__ __rmul__",
         calls_back=True)
    pure(owner, "__copy__ __deepcopy__ tolist tobytes tounicode", calls_back=True)
    iterator(owner, "__iter__", calls_back=False)
    shell(owner, "__len__ __repr__ __class_getitem__")
    mutates(owner, "append extend fromlist frombytes fromunicode insert pop remove reverse byteswap clear __setitem__ "
            "__delitem__", calls_back=True)  # fmt: skip
    mutates(owner, "__iadd__ __imul__", calls_back=True, fresh=None)
    pure(owner, "__reduce_ex__", calls_back=True, fresh=None)
    deny(owner, "fromfile tofile", code="SB015")
    deny(owner, "buffer_info __sizeof__ __buffer__ __release_buffer__", code="SB013", why="shows an address")
    attributes(owner, "*", NativeClass.PURE_SHELL)
    declare_iterator(type_of(iter(array.array("b"))), calls_back=False)


def _clocks_and_chance() -> None:
    deny(time, "sleep", code="SB018", why="waits")
    deny(time, "clock_settime clock_settime_ns tzset", code="SB006")
    pure(time, "struct_time", calls_back=True)
    declare_named_fields(time.struct_time)
    impure(time, "*")
    impure(_random, "Random", why="seeded from the system; its state advances")
    impure.whole_type(_random.Random, why="its state advances")


_dates()
_decimals()
_arrays()
_clocks_and_chance()
