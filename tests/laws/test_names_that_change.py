"""Classes and functions that get another name between calls: what their texts, and errors about them, say."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import types
from typing import Any

import pytest
import torch

import stator


def world() -> Any:
    class Thing:
        __slots__ = ("n", "__dict__", "__weakref__")

        class Inner:
            pass

        def __init__(self) -> None:
            self.n = 3

        def method(self, given: Any) -> Any:
            return given

        @property
        def fixed(self) -> int:
            return 1

    class Assigned:
        def __setitem__(self, key: Any, value: Any) -> None:
            pass

    class Failure(Exception):
        pass

    class Listed(list):
        pass

    @dataclasses.dataclass
    class Record:
        p: int = 1

    class Row(collections.namedtuple("Row", "u v")):
        pass

    def function(p: Any, q: Any) -> Any:
        return p

    return types.SimpleNamespace(
        Thing=Thing, Failure=Failure, Listed=Listed, Record=Record, Row=Row, function=function, thing=Thing(),
        record=Record(), row=Row(1, 2), assigned=Assigned(), Assigned=Assigned)


ROWS: list[Any] = [
    lambda w: repr(w.Thing), lambda w: f"{w.Thing} {w.Thing!r}", lambda w: "%s %r" % (w.Thing, w.Failure),
    lambda w: str([w.Thing, {"k": w.Thing.Inner}]), lambda w: type.__repr__(w.Thing), lambda w: repr(type(w.thing)),
    lambda w: repr(functools.partial(w.Thing)), lambda w: repr(w.Thing | None), lambda w: repr(list[w.Thing]),
    lambda w: "{} {!r}".format(w.Thing, w.Thing), lambda w: repr(w.thing), lambda w: str(w.thing), lambda w: f"{w.thing}",
    lambda w: repr(w.function), lambda w: repr(w.thing.method), lambda w: repr(w.Thing()).partition(" object")[0],
    lambda w: repr(w.Record(5)), lambda w: repr(w.Failure("a", 1)), lambda w: repr(w.row), lambda w: str([w.record]),
    lambda w: w.thing + 1, lambda w: 1 - w.thing, lambda w: -w.thing, lambda w: w.thing < 1, lambda w: w.thing(),
    lambda w: w.thing[0], lambda w: operator.setitem(w.thing, 0, 1), lambda w: operator.delitem(w.thing, 0),
    lambda w: operator.delitem(w.assigned, 0), lambda w: len(w.thing), lambda w: iter(w.thing), lambda w: [*w.thing],
    lambda w: w.function(*w.thing), lambda w: w.function(**w.thing), lambda w: 1 in w.thing, lambda w: w.thing.missing,
    lambda w: w.Thing.missing, lambda w: setattr(w.thing, "fixed", 1), lambda w: int(w.thing), lambda w: [1][w.thing],
    lambda w: "a" * w.thing, lambda w: "a" + w.thing, lambda w: [1] + w.thing, lambda w: "".join([w.thing]),
    lambda w: hash(w.Listed()), lambda w: {w.Listed(): 1}, lambda w: w.Thing(1, 2), lambda w: w.Record(1, 2, 3),
    lambda w: w.thing.method(), lambda w: w.thing.method(1, 2, 3), lambda w: w.function(), lambda w: w.function(1, 2, r=3),
    lambda w: sorted([w.Thing(), w.Thing()]), lambda w: sum([w.thing]), lambda w: torch.ones(2) * w.thing,
    lambda w: torch.tensor(w.thing), lambda w: next(w.thing), lambda w: abs(w.thing), lambda w: range(w.thing),
    lambda w: "%d" % w.thing, lambda w: "%d" % (w.thing,), lambda w: format(w.thing, "d"), lambda w: dict(w.thing),
    lambda w: divmod(w.thing, 1), lambda w: super(w.Thing, w.thing).missing, lambda w: w.Row(1), lambda w: w.row(),
    lambda w: reversed(w.thing), lambda w: w.Thing[0], lambda w: max([w.Thing(), w.Thing()]),
]


def rename(w: Any, name: str, to: str) -> None:
    for value in vars(w).values():
        if isinstance(value, (type, types.FunctionType)):
            setattr(value, name, to.format(value.__name__))
    setattr(w.Thing.method, name, to.format("method"))
    setattr(w.Thing.__init__, name, to.format("init"))


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_names_are_those_of_now(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    w = world()

    def said(x: torch.Tensor) -> Any:
        try:
            return x + 1, row(w)
        except Exception as error:
            return x + 2, str(error), repr(error)

    compiled = stator.compile(said, backend="eager")
    for name, to in (("__doc__", "{}"), ("__name__", "{}Renamed"), ("__qualname__", "Deep.{}"), ("__module__", "elsewhere"),
                     ("__module__", "builtins")):
        rename(w, name, to)
        for x in (torch.ones(2), torch.zeros(2)):
            expected, found = said(x), compiled(x)
            assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:], (name, to)
