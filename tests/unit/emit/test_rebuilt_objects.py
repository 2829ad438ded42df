"""Instances made anew by the residual: their attributes and items, whatever their classes say about setting them."""

from __future__ import annotations

import collections
import dataclasses
import sys
from typing import Any

import pytest
import torch

import stator
from stator import _core, events


class Loud(collections.OrderedDict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("nobody asks it")


class Hidden:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("nobody asks it")


class Slotted:
    __slots__ = ()


def test_items_are_stored_past_the_class() -> None:
    for cls in (Loud, dict, collections.OrderedDict):
        made = cls()
        _core.set_items(made, {"b": 1, "a": 2})
        assert list(made.items()) == [("b", 1), ("a", 2)]


def test_attributes_are_stored_past_the_class() -> None:
    made = Hidden()
    _core.set_vars(made, {"n": 3})
    assert object.__getattribute__(made, "n") == 3


@pytest.mark.parametrize("call", [lambda: _core.set_vars(Slotted(), {"n": 1}), lambda: _core.set_items([], {}),
                                  lambda: _core.set_items({}), lambda: _core.set_vars(Hidden(), [])])
def test_refused(call: Any) -> None:
    with pytest.raises((AttributeError, TypeError)):
        call()


@dataclasses.dataclass
class Result:
    out: torch.Tensor
    again: Any = None


class Table(collections.OrderedDict):  # type: ignore[type-arg]
    pass


def dataclass_of(x: torch.Tensor) -> Any:
    result = Result(x + 1)
    result.again = result
    return result


def table_of(x: torch.Tensor) -> Any:
    table = Table(first=x + 1, second=x + 2)
    table["itself"] = table
    table.note = "seen"
    table.move_to_end("first")
    return table


@pytest.mark.parametrize("program", [dataclass_of, table_of])
def test_results_that_hold_themselves(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    x = torch.arange(3.0)
    for _ in range(3):
        got, wanted = compiled(x), program(x)
        assert type(got) is type(wanted) and list(vars(got)) == list(vars(wanted))
        if program is table_of:
            assert list(got) == list(wanted) == ["second", "itself", "first"]
            assert got["itself"] is got and got.note == "seen" and torch.equal(got["first"], wanted["first"])
        else:
            assert got.again is got and torch.equal(got.out, wanted.out)


class Members(set):  # type: ignore[type-arg]
    pass


class Seven:
    def __hash__(self) -> int:
        return 7


def joined(x: torch.Tensor) -> Any:
    return frozenset([7, 2, 5]) | {2, 9}, {7, 2, 5} | {2, 9}


def shrunk(x: torch.Tensor) -> Any:
    many = set(range(20, 60))
    for n in range(22, 60):
        many.discard(n)
    many.add(9)
    return many


def emptied(x: torch.Tensor) -> Any:
    few = {8, 1, 16}
    few.pop()
    few.add(24)
    return few, few.pop()


def collided(x: torch.Tensor) -> Any:
    return {16, 8, 0}, {0, 8, 16}, {(0, "a"), (8, "b")} | {(1, "c"), (2, "d"), (3, "e")}


def of_own_class(x: torch.Tensor) -> Any:
    made = Members([7, 2, 5])
    made.update({2, 9})
    made.itself = made
    return made


def of_objects(x: torch.Tensor) -> Any:
    return {Seven(), 9, 2} | {Seven(), 1}


def shown(value: Any) -> Any:
    """The members in order, and what the next ones will do to the order."""
    if type(value) is tuple:
        return [shown(item) for item in value]
    if not isinstance(value, (set, frozenset)):
        return value
    more = [] if type(value) is frozenset else [value.add(n) for n in (17, 33, 1)]
    order = [type(item) if type(item) is Seven else item for item in value]
    return type(value), order, more, order if not more else [str(type(value.pop())) for _ in order[:2]]


@pytest.mark.parametrize("program", [joined, shrunk, emptied, collided, of_own_class, of_objects])
def test_a_set_keeps_the_order_that_its_history_gave_it(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for _ in range(3):
        got, wanted = compiled(torch.ones(1)), program(torch.ones(1))
        assert program is not of_own_class or got.itself is got
        assert shown(got) == shown(wanted)


def test_a_set_is_filled_as_it_was_or_member_by_member() -> None:
    held = object()
    for cls in (set, frozenset):
        like = cls([held, 3]) | {9, 17, 25}
        before = sys.getrefcount(held)
        made = _core.fill_set(cls, _core.set_layout(like), list(like))
        now = sys.getrefcount(held)
        same = type(made) is cls and list(made) == list(like) and made == like
        del made
        assert same and (now, sys.getrefcount(held)) == (before + 1, before)
        assert _core.fill_set(cls, _core.set_layout(like), [1, 2]) == {1, 2}  # which hash otherwise
    with pytest.raises(TypeError):
        _core.fill_set([], _core.set_layout(set()), [])
    with pytest.raises(TypeError):
        _core.set_layout([])
    with pytest.raises(TypeError):
        _core.fill_set(set, _core.set_layout({1}), [[]])


class Readable:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def test_the_text_of_the_residual_names_what_it_uses() -> None:
    with events.record() as log:
        made = stator.compile(lambda x: Readable(x * 2), backend="eager", fullgraph=True)(torch.ones(2))
    assert type(made) is Readable and made.x.tolist() == [2.0, 2.0]
    text = "".join(event.residual_source for event in log if isinstance(event, events.CaptureFinished))
    assert "Readable" in text, text


@dataclasses.dataclass
class Pair:
    first: int
    second: int


def test_a_set_that_is_as_before_at_the_end_asks_for_no_layout() -> None:
    """`repr` of a dataclass adds to a set and removes: each call leaves another table, at addresses of the process."""
    def program(x: torch.Tensor, working: set[str], name: str) -> tuple[torch.Tensor, str]:
        working.add(name)
        working.discard(name)
        return x + 1, repr(Pair(5, 2))

    compiled, given, wanted = stator.compile(program, backend="eager"), {"a"}, {"a"}
    x = torch.ones(2)
    with events.record() as log:
        for _ in range(4):
            assert compiled(x, given, "b")[1] == program(x, wanted, "b")[1]
            assert _core.set_layout(given) == _core.set_layout(wanted)
    assert sum(isinstance(event, events.CaptureStarted) for event in log) == 1
