"""Empty tables of hooks that the program only asks for their truth: no stand-in, and every change is seen."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

X = torch.arange(4.0)


class Table:
    def __init__(self) -> None:
        self.hooks: Any = collections.OrderedDict()
        self.others: Any = collections.OrderedDict()


def asks(table: Table, x: torch.Tensor) -> torch.Tensor:
    if table.hooks:
        return x * 3
    return x + 1


def compiled_with(program: Any) -> Any:
    return stator.compile(program, backend="eager", options={"strict": True})


@pytest.mark.parametrize("change", [lambda t: t.hooks.update(a=1), lambda t: setattr(t, "hooks", {1: 2}),
                                    lambda t: setattr(t, "hooks", []), lambda t: setattr(t, "hooks", None),
                                    lambda t: dict.__setitem__(t.hooks, "a", 1)])
def test_a_change_between_calls(change: Any) -> None:
    table, compiled = Table(), compiled_with(asks)
    for _ in range(3):
        assert torch.equal(compiled(table, X), X + 1)
    change(table)
    for _ in range(3):
        assert torch.equal(compiled(table, X), asks(table, X))


def writes_then_asks(table: Table, x: torch.Tensor) -> torch.Tensor:
    before = 1 if table.hooks else 2
    table.hooks["n"] = before
    return asks(table, x) * before


def asks_then_writes_another(table: Table, x: torch.Tensor) -> torch.Tensor:
    first = asks(table, x)
    table.others["n"] = 1
    return first + asks(table, x)


def asks_and_keeps(table: Table, x: torch.Tensor) -> Any:
    if not table.hooks:
        return asks(table, x), table.hooks
    return x, None


def counts(table: Table, x: torch.Tensor) -> Any:
    return (x, len(table.hooks), list(table.hooks)) if not table.hooks and not table.others else (x, -1, [])


@pytest.mark.parametrize("program", [writes_then_asks, asks_then_writes_another, asks_and_keeps, counts])
def test_same_as_eager(program: Any) -> None:
    same_as_eager(program, lambda: call(Table(), X))


def test_one_table_under_two_names_later() -> None:
    """A write through one name was not seen through the other: they must stay two tables."""
    compiled = compiled_with(asks_then_writes_another)
    assert torch.equal(compiled(Table(), X), asks_then_writes_another(Table(), X))
    mine, theirs = Table(), Table()
    mine.others, theirs.others = mine.hooks, theirs.hooks
    assert torch.equal(compiled(mine, X), asks_then_writes_another(theirs, X))


class Watching(Table):
    def __getattribute__(self, name: str) -> Any:
        return {"a": 1} if name == "hooks" else object.__getattribute__(self, name)


class Data:
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return [1]

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["hooks"] = value


class Described(Table):
    hooks: Any = Data()


@pytest.mark.parametrize("cls", [Watching, Described])
def test_classes_that_answer_themselves(cls: type) -> None:
    same_as_eager(asks, lambda: call(cls(), X))


class Hooked(torch.nn.Module):
    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(),
                                                               torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(4)])
        if shared:
            for layer in self.layers:
                layer[0]._forward_hooks = self.layers[0][0]._forward_hooks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if number == 2:
                self.layers[3][0]._forward_hooks["in the trace"] = double
            x = layer(x)
        self.layers[3][0]._forward_hooks.clear()
        return x


def double(module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 2


@pytest.mark.parametrize("shared", [False, True])
def test_hooks_that_the_trace_itself_adds_to_a_later_layer(shared: bool) -> None:
    with torch.no_grad():
        torch.manual_seed(0)
        model = Hooked(shared).eval()
        compiled = stator.compile(model, backend="eager", options={"strict": True})
        for _ in range(2):
            assert torch.equal(compiled(X), model(X))
