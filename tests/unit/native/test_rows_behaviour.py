"""Rows promise what CPython does: no callbacks where none are promised, no hidden aliases."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator

import pytest
import torch

from stator.native.rows_declare import ROWS
from stator.native.table import NativeClass, Row, name_of

RUN_BY_THE_TEST = {
    NativeClass.PURE_SHELL, NativeClass.PURE, NativeClass.PURE_DEEP, NativeClass.MUTATES, NativeClass.ITERATOR,
}  # fmt: skip

HOOKS = (
    "__index__ __int__ __float__ __complex__ __bool__ __len__ __iter__ __next__ __getitem__ __contains__ __eq__ "
    "__ne__ __lt__ __le__ __gt__ __ge__ __hash__ __repr__ __str__ __format__ __bytes__ __add__ __radd__ __mul__ "
    "__rmul__ __or__ __ror__ __and__ __rand__ __sub__ __rsub__ __call__ __fspath__ keys __length_hint__ __round__ "
    "__floor__ __ceil__ __trunc__ __abs__ __neg__ __pow__ __rpow__ __mod__ __rmod__ __divmod__ __rdivmod__ "
    "__setitem__ __delitem__ __missing__ __reversed__ __index__ __copy__ __deepcopy__ __dir__ __sizeof__"
).split()


def spy_class(seen: list[str]) -> type:
    """A class all of whose special methods say that they were called, and then give up."""

    def hook(name: str) -> Callable[..., object]:
        def called(*args: object) -> object:
            seen.append(name)
            raise TypeError(name)

        return called

    return type("Spy", (), {name: hook(name) for name in HOOKS})


EXAMPLES: dict[type, Callable[[], object]] = {
    example: (lambda value=value: value)
    for example, value in {
        int: 3, float: 1.5, complex: 1j, bool: True, str: "ab", bytes: b"ab", tuple: (1, 2), range: range(3),
        slice: slice(1, 2), types.NoneType: None, frozenset: frozenset([1]), object: object(),
        torch.Size: torch.Size([1]), torch.dtype: torch.float32, torch.device: torch.device("cpu"),
        torch.finfo: torch.finfo(torch.float32), re.Pattern: re.compile("a"), types.CodeType: spy_class.__code__,
        BaseException: ValueError("a"), types.EllipsisType: ...,
    }.items()
}  # fmt: skip
EXAMPLES |= {
    list: lambda: [1, 2], dict: lambda: {1: 2}, set: lambda: {1}, bytearray: lambda: bytearray(b"ab"),
    collections.deque: lambda: collections.deque([1]), collections.OrderedDict: lambda: collections.OrderedDict({1: 2}),
    collections.defaultdict: lambda: collections.defaultdict(list), re.Match: lambda: re.match("a", "a"),
}  # fmt: skip
EXAMPLES |= {
    type(make()): make
    for make in (
        lambda: iter([1]), lambda: iter((1,)), lambda: iter({1: 2}), lambda: iter({1}), lambda: iter("a"),
        lambda: iter(range(2)), lambda: reversed([1]), lambda: {1: 2}.keys(), lambda: {1: 2}.items(),
        lambda: {1: 2}.values(),
    )
}  # fmt: skip


def receivers(row: Row) -> Iterator[tuple[object, ...]]:
    """The first arguments to call the row's object with: none for a function, an example for a method."""
    owner = getattr(row.obj, "__objclass__", None)
    if owner is None:
        yield ()
    elif owner in EXAMPLES:
        yield (EXAMPLES[owner](),)


def argument_lists(spy: object) -> list[tuple[object, ...]]:
    values = (spy, 1, "a", [spy], (spy,))
    return [(), *((value,) for value in values), *itertools.product((spy, 1, "a"), repeat=2), (spy, spy, spy)]


def silent_rows() -> list[Row]:
    callables = (row for row in ROWS.values() if callable(row.obj) and row.cls in RUN_BY_THE_TEST)
    return [row for row in callables if not row.calls_back and any(True for _ in receivers(row))]


def test_enough_rows_are_tried():
    assert len(silent_rows()) > 300


@pytest.mark.parametrize("row", silent_rows(), ids=name_of)
def test_no_python_runs_where_no_callback_is_promised(row: Row):
    seen: list[str] = []
    spy = spy_class(seen)()
    for receiver in receivers(row):
        for arguments in argument_lists(spy):
            with contextlib.suppress(Exception):  # most of these calls are wrong; only callbacks matter
                row.obj(*receiver, *arguments)
        assert seen == []


def calls_into_python(function: Callable[..., object], *arguments: object) -> list[str]:
    """The Python functions that run during one call.

    The collector stays off meanwhile: it may run on any allocation, and what it calls back is not the row's.
    """
    names: list[str] = []

    def profile(frame: types.FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    collecting = gc.isenabled()
    gc.disable()
    with contextlib.suppress(Exception):  # a wrong call may raise, and must raise without running Python
        try:
            sys.setprofile(profile)
            function(*arguments)
        finally:
            sys.setprofile(None)
            if collecting:
                gc.enable()
    return names


@pytest.mark.parametrize("row", silent_rows(), ids=name_of)
def test_builtin_scalars_run_no_python_at_all(row: Row):
    for receiver in receivers(row):
        for arguments in ((), (1,), ("a",), (1.5,), (None,), (1, 2), ("a", "b")):
            assert calls_into_python(row.obj, *receiver, *arguments) == []


def fresh_rows() -> list[Row]:
    pure = {NativeClass.PURE_SHELL, NativeClass.PURE, NativeClass.PURE_DEEP}
    callables = (row for row in ROWS.values() if callable(row.obj) and row.cls in pure and row.fresh)
    return [row for row in callables if getattr(row.obj, "__objclass__", None) in EXAMPLES]


@pytest.mark.parametrize("row", fresh_rows(), ids=name_of)
def test_fresh_results_are_neither_arguments_nor_their_parts(row: Row):
    part: list[object] = []
    for receiver in receivers(row):
        for arguments in ((), ([part],), (part,), (0,), (0, part), ({1: part},), ("a", part)):
            with contextlib.suppress(Exception):
                result = row.obj(*receiver, *arguments)
                shared = any(result is value for value in (part, *receiver, *arguments))
                assert not shared or isinstance(result, (int, str, bytes, float, complex, type(None))), (
                    arguments
                )
