"""Rows for the C modules of computation: operator, math, itertools, functools, collections, bisect, heapq.

In: the modules. Out: rows. Most of these ask the program's own objects to add, compare, hash or iterate, so
`calls_back` is the rule here, and a result may be an argument or a part of one.
"""

from __future__ import annotations

import _bisect
import _collections
import _functools
import _heapq
import _operator
import cmath
import itertools
import math

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
    optional_module,
    pure,
    shell,
    special,
    type_of,
    wrapper,
)

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"


def _operators() -> None:
    shell(_operator, "is_ is_not is_none is_not_none")
    pure(_operator, "truth not_ index", calls_back=True)
    deep(_operator, "eq ne lt le gt ge", calls_back=True, compares=True, fresh=None)
    deep(_operator, "contains indexOf countOf", calls_back=True, compares=True)
    pure(_operator,
         "add sub mul matmul floordiv truediv neg pos abs inv invert lshift rshift and_ xor or_ pow concat",
         calls_back=True, compares=True, fresh=None)
    deep(_operator, "mod", calls_back=True, formats=True, fresh=None, why="text % values")
    mutates(_operator, "iadd isub imul imatmul ifloordiv itruediv ilshift irshift iand ixor ior ipow iconcat",
            calls_back=True, compares=True, fresh=None)
    mutates(_operator, "imod", calls_back=True, compares=True, formats=True, fresh=None)
    pure(_operator, "getitem", calls_back=True, compares=True, fresh=None)
    mutates(_operator, "setitem delitem", calls_back=True, compares=True)
    shell(_operator, "length_hint", calls_back=True)
    pure(_operator, "_compare_digest", calls_back=True)
    special(_operator, "call", why="calls its argument, which may be Python")
    special(_operator, "attrgetter itemgetter methodcaller", why="reads attributes and items of its argument later")
    for owner in (_operator.attrgetter, _operator.itemgetter, _operator.methodcaller):
        attribute_slots(owner)
        deep(owner, "__repr__", calls_back=True, formats=True)
        special(owner, "__new__ __call__ __vectorcalloffset__", why="reads attributes and items of its argument")
        shell(owner, "__reduce__", fresh=None)
        attributes(owner, "*", NativeClass.SPECIAL, why="part of the vectorcall protocol")


def _mathematics() -> None:
    pure(math, "ceil floor trunc prod sumprod", calls_back=True, fresh=None, why="asks the number itself")
    pure(math, "*", calls_back=True)
    pure(cmath, "*", calls_back=True)
    pure(optional_module("_statistics"), "*", calls_back=True)


def _iteration() -> None:
    iterator(itertools, "*")
    for owner in [value for value in vars(itertools).values() if is_c_type(value)]:
        declare_iterator(owner, calls_back=True)
        iterator(owner, "__new__ from_iterable")
        shell(owner, "__copy__", fresh=None)
        deep(owner, "__repr__", calls_back=True, formats=True)


def _functions() -> None:
    pure(_functools, "reduce", calls_back=True, fresh=None)
    shell(_functools, "cmp_to_key")
    key = type_of(_functools.cmp_to_key(max))
    attribute_slots(key)
    shell(key, "__call__")
    deep(key, COMPARISONS, calls_back=True, compares=True, why="calls the comparison function")
    attributes(key, "*", NativeClass.PURE_SHELL)

    partial = _functools.partial
    attribute_slots(partial)
    pure(_functools, "partial")
    pure(partial, "__new__")
    wrapper(partial, "__call__", why="calls the function it holds, with the arguments it holds")
    special(partial, "__get__", why="may bind")
    deep(partial, "__repr__", calls_back=True, formats=True)
    special(partial, "__reduce__", why="hands out the instance's __dict__")
    mutates(partial, "__setstate__", calls_back=True)
    shell(partial, "__class_getitem__")
    attributes(partial, "__dict__", NativeClass.SPECIAL, why="hands out the instance's __dict__")
    attributes(partial, "*", NativeClass.PURE_SHELL)

    cached = _functools._lru_cache_wrapper
    attribute_slots(cached)
    pure(_functools, "_lru_cache_wrapper", calls_back=True)
    pure(cached, "__new__", calls_back=True)
    wrapper(cached, "__call__", why="a hit or a miss shows in the cache; what it wraps is interpreted")
    special(cached, "__get__", why="binds the function it wraps")
    impure(cached, "cache_info", why="counts calls made elsewhere")
    deny(cached, "cache_clear", code="SB006", why="empties a cache that others use")
    shell(cached, "__copy__ __deepcopy__ __reduce__", fresh=None)
    attributes(cached, "*", NativeClass.SPECIAL, why="hands out the instance's __dict__")


def _deques() -> None:
    deque = _collections.deque
    attribute_slots(deque)
    pure(_collections, "deque", calls_back=True)
    shell(deque, "__new__ __len__ __class_getitem__")
    mutates(deque, "__init__ extend extendleft __setitem__ __delitem__", calls_back=True)
    shell(deque, "append", mutates=True)
    # What they do depends on the length, which nobody guards for a shell.
    mutates(deque, "appendleft clear reverse")
    mutates(deque, "insert rotate", calls_back=True)
    mutates(deque, "pop popleft", fresh=None)
    mutates(deque, "__iadd__ __imul__", calls_back=True, fresh=None)
    mutates(deque, "remove", calls_back=True, compares=True)
    deep(deque, f"{COMPARISONS} __contains__ count index", calls_back=True, compares=True)
    deep(deque, "__repr__", calls_back=True, formats=True)
    pure(deque, "__getitem__ __add__ __mul__ __rmul__", calls_back=True, fresh=None)
    pure(deque, "copy __copy__", calls_back=True)
    iterator(deque, "__iter__ __reversed__", calls_back=False)
    special(deque, "__reduce__", why="hands out the instance's __dict__")
    deny(deque, "__sizeof__", code="SB013", why="depends on how the object grew")
    attributes(deque, "*", NativeClass.PURE_SHELL)
    iterator(_collections, "_deque_iterator _deque_reverse_iterator")
    for owner in (_collections._deque_iterator, _collections._deque_reverse_iterator):
        declare_iterator(owner, calls_back=False)
        iterator(owner, "__new__")


def _dictionaries() -> None:
    pure(_collections, "OrderedDict defaultdict", calls_back=True, compares=True)
    for owner in (_collections.OrderedDict, _collections.defaultdict):
        attribute_slots(owner)
        shell(owner, "__new__ keys values items __class_getitem__")
        mutates(owner, "__init__ update", calls_back=True, compares=True)
        mutates(owner, "setdefault pop popitem __delitem__ __ior__ move_to_end __missing__", calls_back=True,
                compares=True, fresh=None)  # fmt: skip
        shell(owner, "__setitem__", mutates=True, calls_back=True, compares=True)
        mutates(owner, "clear")  # which keys go is a fact
        pure(owner, "__or__ __ror__ fromkeys copy __copy__", calls_back=True, compares=True)
        deep(owner, COMPARISONS, calls_back=True, compares=True)
        deep(owner, "__repr__", calls_back=True, formats=True)
        iterator(owner, "__iter__ __reversed__", calls_back=False)
        special(owner, "__reduce__", why="hands out the instance's __dict__")
        deny(owner, "__sizeof__", code="SB013", why="depends on how the object grew")
        attributes(owner, "default_factory", NativeClass.PURE_SHELL)
        attributes(owner, "*", NativeClass.SPECIAL, why="hands out the instance's __dict__")
    views = (_collections.OrderedDict().keys(), _collections.OrderedDict().values(),
             _collections.OrderedDict().items())
    for view in views:
        attribute_slots(type(view))
        iterator(type(view), "__iter__ __reversed__", calls_back=False)
    declare_iterator(type_of(iter(_collections.OrderedDict())), calls_back=False)
    mutates(_collections, "_count_elements", calls_back=True, compares=True)

    getter = _collections._tuplegetter
    attribute_slots(getter)
    pure(_collections, "_tuplegetter", calls_back=True)
    pure(getter, "__new__", calls_back=True)
    shell(getter, "__get__", fresh=None, why="a field of a named tuple")
    shell(getter, "__set__ __delete__", why="always raises")
    shell(getter, "__repr__ __reduce__", fresh=None)
    attributes(getter, "*", NativeClass.PURE_SHELL)


def _ordered_lists() -> None:
    pure(_bisect, "bisect_left bisect_right", calls_back=True, compares=True)
    mutates(_bisect, "insort_left insort_right", calls_back=True, compares=True)
    mutates(
        _heapq,
        "heappush heappushpop heappop heapreplace heapify _heappop_max _heapify_max _heapreplace_max "
        "heappush_max heappushpop_max heappop_max heapreplace_max heapify_max",
        calls_back=True,
        compares=True,
        fresh=None,
    )


_operators()
_mathematics()
_iteration()
_functions()
_deques()
_dictionaries()
_ordered_lists()
