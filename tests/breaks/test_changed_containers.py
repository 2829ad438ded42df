"""A break while a loop walks a container that this segment has changed: the loop goes on where it was."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import stator


def appended(d: dict[str, int]) -> Any:
    rows = [[7, 8]]
    stator.graph_break()
    rows.append([1])
    total = 0
    for row in rows:
        if len(row) == 1:
            stator.graph_break()
        total += row[0]
    return total


def keys_of_a_dict(d: dict[str, int]) -> Any:
    stator.graph_break()
    d["z"] = 1
    out = []
    for key in d:
        if key == "z":
            stator.graph_break()
        out.append(key)
    return out


def items_of_a_dict(d: dict[str, int]) -> Any:
    stator.graph_break()
    d["z"] = 1
    out = []
    for pair in d.items():
        stator.graph_break()
        out.append(pair)
    return out


def a_deque(d: dict[str, int]) -> Any:
    queue = collections.deque(d)
    stator.graph_break()
    queue.append("z")
    out = []
    for key in queue:
        if key == "z":
            stator.graph_break()
        out.append(key)
    return out


def numbered(d: dict[str, int]) -> Any:
    names = list(d)
    stator.graph_break()
    names += ["q", "r"]
    out = []
    for i, name in enumerate(names):
        if name in "qr":
            stator.graph_break()
        out.append((i, name))
        if len(names) < 6:
            names.append("q")
    return out


def from_both_ends(d: dict[str, int]) -> Any:
    names = list(d)
    stator.graph_break()
    names += ["q", "r"]
    out = []
    for pair in zip(names, reversed(names), strict=True):
        if pair[0] in "qr":
            stator.graph_break()
        out.append(pair)
    return out


def by_a_generator(d: dict[str, int]) -> Any:
    names = list(d)
    stator.graph_break()
    names.append("q")

    def every() -> Any:
        yield from names

    out = []
    for name in every():
        if name == "q":
            stator.graph_break()
        out.append(name)
    return out


def some_bytes(d: dict[str, int]) -> Any:
    data = bytearray(b"ab")
    stator.graph_break()
    data.append(5)
    out = []
    for each in data:
        if each == 5:
            stator.graph_break()
        out.append(each)
    return out


def beyond_the_end(d: dict[str, int]) -> Any:
    names = list(d)
    stator.graph_break()
    walk = iter(names)
    next(walk)
    next(walk)
    names.pop()
    stator.graph_break()
    names += ["w", "x"]
    return list(walk)


PROGRAMS = (appended, keys_of_a_dict, items_of_a_dict, a_deque, numbered, from_both_ends, by_a_generator, some_bytes,
            beyond_the_end)


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Callable[..., Any]) -> None:
    compiled = stator.compile(program, backend="eager")
    for start in ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 3, "b": 4, "c": 5}):
        mine, theirs = dict(start), dict(start)
        assert compiled(mine) == program(theirs)
        assert list(mine.items()) == list(theirs.items())
