"""Errors that name a class of C code: `'collections.deque' object has no attribute 'w'`, as CPython says it."""

from __future__ import annotations

import collections
import functools
import itertools
import types
from typing import Any

import pytest
import torch

import stator
from stator.interp.objects import descriptors

MAKERS: dict[str, Any] = {
    "namespace": lambda: types.SimpleNamespace(v=1), "deque": collections.deque, "counter": collections.Counter,
    "ordered": collections.OrderedDict, "default": collections.defaultdict, "partial": lambda: functools.partial(int),
    "chain": itertools.chain, "dtype": lambda: torch.float32, "device": lambda: torch.device("cpu"),
    "size": lambda: torch.Size([1]), "list": list, "exception": ValueError, "function": lambda: lambda: 1,
}


def deleted(value: Any) -> Any:
    del value.w


def assigned(value: Any) -> Any:
    value.real = 1
    del value.real
    del value.real


def deleted_item(value: Any) -> Any:
    del value[0]


def unpacked(value: Any) -> Any:
    a, b, c, d = value
    return a, b, c, d


def entered(value: Any) -> Any:
    with value:
        pass


WAYS: dict[str, Any] = {
    "read": lambda value: value.w, "deleted": deleted, "assigned": assigned, "called": lambda value: value(1, 2, 3, 4),
    "subscripted": lambda value: value["x"], "added": lambda value: value + 3, "compared": lambda value: value < 3,
    "of the class": lambda value: type(value).zzz, "contains": lambda value: 3 in value, "next": lambda value: next(value),
    "spread": lambda value: print(*value, file=3), "mapping": lambda value: {**value}, "unpacked": unpacked,
    "entered": entered, "deleted item": deleted_item,
}


def program(make: Any, way: Any) -> Any:
    def attempt(x: torch.Tensor) -> Any:
        try:
            return str(type(way(make())))
        except Exception as error:  # its text is compared
            return type(error).__name__, str(error), x + 1
    return attempt


def texts(make: Any, way: Any) -> tuple[Any, Any]:
    attempt = program(make, way)
    compiled = stator.compile(attempt, backend="eager")
    return repr(attempt(torch.ones(1))), repr(compiled(torch.ones(1)))


@pytest.mark.parametrize("maker", MAKERS)
def test_is_eager(maker: str) -> None:
    stator.reset()
    found = {way: texts(MAKERS[maker], WAYS[way]) for way in WAYS}
    assert {way: pair for way, pair in found.items() if pair[0] != pair[1]} == {}


def test_is_noticed(monkeypatch: Any) -> None:
    monkeypatch.setattr(descriptors, "name_in_errors", lambda cls: cls.__name__)
    eager, compiled = texts(collections.deque, WAYS["read"])
    assert eager != compiled
