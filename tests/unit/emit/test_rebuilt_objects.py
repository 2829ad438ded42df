"""Instances made anew by the residual: their attributes and items, whatever their classes say about setting them."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest
import torch

import stator
from stator import _core


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
