"""The table finds rows by object: bound methods, slots, class methods and constructors reach their own row."""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import io
import itertools
import operator
import random
import re
import struct
import sys
import time
import types
import zlib

import pytest
import torch

import stator
from stator.breaks import REGISTRY
from stator.errors import InternalError
from stator.native import rows_declare
from stator.native.rows_declare import NAMES, ROWS, add, is_c_type
from stator.native.table import NO_RECEIVER, NativeClass, Row, lookup, name_of, receiver_split
from tests.unit.native.row_coverage import unlisted


class Sub(list):
    def append(self, value):
        super().append(value)


def classes_of(*callables) -> list[NativeClass]:
    return [row.cls for row in map(lookup, callables) if row is not None]


def test_bound_methods_reach_their_descriptor():
    xs: list[int] = []
    assert lookup(xs.append) is lookup(list.append)
    assert lookup(xs.append).obj is list.append
    assert receiver_split(xs.append) == (list.append, xs)
    assert receiver_split(xs.append)[1] is xs
    assert lookup("".join).obj is str.join
    assert receiver_split((1).__add__) == (int.__add__, 1)
    assert receiver_split(None.__bool__) == (types.NoneType.__bool__, None)


def test_class_methods_static_methods_and_metaclass_methods():
    assert receiver_split(dict.fromkeys) == (vars(dict)["fromkeys"], dict)
    assert lookup({}.fromkeys).obj is vars(dict)["fromkeys"]
    assert receiver_split(collections.Counter.mro)[0] is type.mro
    assert lookup(str.maketrans).cls is NativeClass.PURE
    assert receiver_split(str.maketrans)[1] is NO_RECEIVER
    assert lookup(list.__new__).obj is list.__new__ is not object.__new__


def test_override_in_a_subclass_does_not_hide_the_c_method():
    value = Sub()
    assert receiver_split(super(Sub, value).append) == (list.append, value)
    assert lookup(value.append) is None, "a Python method is interpreted"
    ordered = collections.OrderedDict()
    assert receiver_split(ordered.pop)[0] is collections.OrderedDict.pop
    assert receiver_split(dict.pop.__get__(ordered))[0] is dict.pop


BOUND = [1, 1.5, "a", b"a", [], (), {}, set(), frozenset(), bytearray(), collections.deque(), re.compile("a"),
         re.match("a", "a"), collections.OrderedDict(), range(3), iter([]), zlib.compressobj(), struct.Struct("b"),
         array.array("b"), ValueError(), int, torch.float32, torch.Size([1]), io.StringIO()]  # fmt: skip


@pytest.mark.parametrize("example", BOUND, ids=lambda example: type(example).__name__)
def test_every_bound_method_reaches_the_row_of_its_descriptor(example):
    kinds = (types.MethodDescriptorType, types.WrapperDescriptorType)
    descriptors = [entry for entry in vars(type(example)).values() if isinstance(entry, kinds)]
    assert descriptors
    for descriptor in descriptors:
        bound = descriptor.__get__(example, type(example))
        assert receiver_split(bound)[0] is descriptor and receiver_split(bound)[1] is example
        assert lookup(bound) is lookup(descriptor) is not None


def test_callable_instances_reach_the_slot_of_their_type():
    partial = functools.partial(max, 1)
    assert receiver_split(partial) == (functools.partial.__call__, partial)
    cached = functools.lru_cache(max)
    assert classes_of(partial, cached) == [NativeClass.WRAPPER] * 2
    assert lookup(operator.itemgetter(1)).cls is NativeClass.SPECIAL


def test_unknown_callables_have_no_row():
    class Plain:
        def __call__(self):
            return 1

    def function():
        return 1

    assert lookup(Plain) is None
    assert lookup(function) is None
    assert lookup(torch._C.ScriptModule.__init__) is None
    assert lookup(torch._C._NodeIter.__next__) is None, "a slot wrapper without a row of its own"
    assert lookup(Plain()) is None
    assert lookup(Plain().__call__) is None
    assert lookup(torch._C._crash_if_csrc_asan) is None
    assert receiver_split(Plain) == (Plain, NO_RECEIVER)
    assert receiver_split(len) == (len, NO_RECEIVER)
    assert lookup(types.MethodType(torch._C._crash_if_csrc_asan, 1)) is None
    assert lookup(3) is None


def test_method_object_over_a_c_function():
    method = types.MethodType(len, [1])
    assert receiver_split(method) == (len, [1])
    assert lookup(method) is lookup(len)


@pytest.mark.parametrize(
    ("function", "cls", "code"),
    [
        (len, NativeClass.PURE_SHELL, ""),
        (sorted, NativeClass.PURE_DEEP, ""),
        (list.extend, NativeClass.MUTATES, ""),
        (print, NativeClass.EFFECT, ""),
        (map, NativeClass.ITERATOR, ""),
        (itertools.chain.from_iterable, NativeClass.ITERATOR, ""),
        (getattr, NativeClass.SPECIAL, ""),
        (type.__call__, NativeClass.SPECIAL, ""),
        (contextvars.ContextVar.get, NativeClass.OUTSIDE_REF, ""),
        (time.time, NativeClass.IMPURE_READ, "SB013"),
        (random.random, NativeClass.IMPURE_READ, "SB013"),
        (open, NativeClass.DENY, "SB015"),
        (sys._getframe, NativeClass.DENY, "SB008"),
        (torch._C._set_grad_enabled, NativeClass.SPECIAL, ""),
        (torch.get_default_dtype, NativeClass.PURE_SHELL, ""),
        (torch.Size([1]).numel, NativeClass.PURE, ""),
        (torch.default_generator.manual_seed, NativeClass.SPECIAL, ""),
    ],
)
def test_classes(function, cls, code):
    row = lookup(function)
    assert (row.cls, row.code) == (cls, code)


def test_appending_looks_at_nothing_but_changes_the_list():
    row = lookup(list.append)
    assert row.cls is NativeClass.PURE_SHELL and row.mutates and not row.calls_back


def test_rows_hold_their_objects_under_their_ids():
    assert all(key == id(row.obj) for key, row in ROWS.items())
    assert len({id(row.obj) for row in ROWS.values()}) == len(ROWS)
    assert set(NAMES) == set(ROWS)
    assert name_of(lookup([].sort)) == "list.sort"


def test_refused_rows_have_registered_codes_and_no_other_row_has_one():
    refused = (NativeClass.DENY, NativeClass.IMPURE_READ)
    for row in ROWS.values():
        assert (row.cls in refused) == bool(row.code), name_of(row)
        assert row.code in REGISTRY or not row.code
        assert row.mutates or row.cls is not NativeClass.MUTATES, name_of(row)


def test_declaring_twice_or_without_a_code_is_an_error():
    with pytest.raises(InternalError, match=r"list\.again has a row already, as list\.append"):
        add(list.append, "list.again", NativeClass.PURE, {})
    with pytest.raises(InternalError, match="break code"):
        add(object(), "nothing", NativeClass.DENY, {})
    with pytest.raises(InternalError, match="not registered"):
        add(object(), "nothing", NativeClass.DENY, {"code": "SB999"})


def test_star_declares_only_what_has_no_row_yet(monkeypatch):
    monkeypatch.setattr(rows_declare, "ROWS", {id(list.append): Row(list.append, NativeClass.PURE)})
    monkeypatch.setattr(rows_declare, "NAMES", {})
    rows_declare.deny(list, "*", code="SB001")
    assert rows_declare.ROWS[id(list.append)].cls is NativeClass.PURE
    assert rows_declare.ROWS[id(list.pop)].cls is NativeClass.DENY
    assert rows_declare.ROWS[id(list.__new__)].code == "SB001"


def test_unlisted_reports_what_has_no_row(monkeypatch):
    monkeypatch.delitem(ROWS, id(list.append))
    assert unlisted(list) == ["list.append"]
    module = types.ModuleType("extension")
    module.run = torch._C._crash_if_csrc_asan
    module.Python = Sub
    assert unlisted(module) == ["extension.run"]


def test_c_types_are_told_from_python_classes():
    assert all(
        map(is_c_type, (int, collections.deque, functools.partial, torch.Size, torch._C.DispatchKeySet))
    )
    assert not any(map(is_c_type, (Sub, collections.Counter, torch.nn.Module, torch.Tensor, 3)))


def test_a_receiver_is_never_asked_for_its_class() -> None:
    class Watchful:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    watchful = Watchful()
    bound = object.__dict__["__format__"].__get__(watchful)
    assert receiver_split(bound)[0] is object.__dict__["__format__"]
    assert receiver_split(watchful) == (watchful, NO_RECEIVER)


class Plain:
    """Hashes by its address."""


@pytest.mark.parametrize("read", [list, tuple, dict.fromkeys, collections.deque], ids=lambda read: read.__name__)
def test_the_order_of_a_set_that_addresses_decide_is_traced_where_no_member_leaves(read):
    def ordered(x, leaves):
        first, second = Plain(), Plain()
        place = next(iter(read({first, second}))) is first
        return (x + place, first) if leaves else x + place

    def codes(leaves):
        return [reason.code for reason in stator.explain(ordered, backend="eager")(torch.ones(2), leaves).break_reasons]

    assert lookup(read).shows_order
    assert codes(True) == ["SB013"] and codes(False) == []
