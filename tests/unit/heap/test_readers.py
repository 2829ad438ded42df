"""Pure readers: what guards ask of C objects, without changing them."""

from __future__ import annotations

import collections
import decimal
import itertools
import operator
import types
import weakref
from typing import Any

import pytest

from stator import _hook
from stator.heap import pure_readers
from stator.heap.iterators.outside_iterators import advanced, exhausted
from stator.heap.raw_access import new_shell


@pytest.mark.parametrize("make", [
    lambda: iter([1, 2, 3]), lambda: enumerate("abc"), lambda: zip([1, 2], "ab"), lambda: itertools.count(3),
    lambda: itertools.chain([1], [2]), lambda: map(str, [1, 2]), lambda: reversed([1, 2]),
])
def test_reduced_does_not_advance(make: Any) -> None:
    it, untouched = make(), make()
    pure_readers.reduced(it)
    pure_readers.reduced(it)
    assert next(it) == next(untouched)


def test_container_behind() -> None:
    d = {"a": 1, "b": 2}
    it = iter(d.items())
    assert pure_readers.container_behind(it) is d
    assert pure_readers.container_behind(d.values()) is d
    exhausted(it)
    assert pure_readers.container_behind(it) is None


def test_places_of_iterators_of_dicts() -> None:
    table = {"a": 1, "b": 2, "c": 3}
    it = iter(table)
    assert _hook.walker_place(it) == (0, 3, False)
    assert _hook.walker_place(advanced(it, 2)) == (2, 1, False)
    assert _hook.walker_place(exhausted(it)) == ()
    backwards = reversed(table)
    assert _hook.walker_place(advanced(backwards, 2)) == (0, 1, False)
    table["d"] = 4
    with pytest.raises(RuntimeError, match="changed size"):
        next(backwards)
    assert _hook.walker_place(backwards) == (0, 1, True)
    with pytest.raises(TypeError, match="an iterator of a dict is needed"):
        _hook.walker_place(iter([]))
    with pytest.raises(TypeError, match="an iterator of a dict is needed"):
        _hook.spoil_walker(iter([]))


def test_what_is_behind_holders() -> None:
    class Thing:
        pass

    d, thing = {"a": 1}, Thing()
    assert pure_readers.mapping_behind(types.MappingProxyType(d)) is d
    ref = weakref.ref(thing)
    assert pure_readers.referent_of(ref) is thing
    del thing
    assert pure_readers.referent_of(ref) is None
    assert pure_readers.default_factory_of(collections.defaultdict()) is None
    assert pure_readers.default_factory_of(collections.defaultdict(list)) is list


def test_plain_values_ignore_the_programs_methods() -> None:
    class Odd(int):
        def __int__(self) -> int:
            raise AssertionError("not asked")

        __index__ = __pos__ = __int__

    class Text(str):
        def __str__(self) -> str:
            raise AssertionError("not asked")

    assert pure_readers.plain_value(Odd(3)) == 3 and type(pure_readers.plain_value(Odd(3))) is int
    assert type(pure_readers.plain_value(Text("a"))) is str
    assert pure_readers.plain_value(type("C", (complex,), {})(1 + 2j)) == 1 + 2j


def test_shells() -> None:
    assert new_shell(types.SimpleNamespace) is not None
    assert new_shell(type("L", (list,), {})).base is list  # type: ignore[union-attr]
    for c_type in (type(iter([])), operator.itemgetter, decimal.Decimal):
        assert new_shell(c_type) is None
