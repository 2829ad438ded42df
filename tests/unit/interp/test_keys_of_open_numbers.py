"""Numbers that are left open become keys: what hashes them is told the number."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events

WAYS: dict[str, Callable[[int], Any]] = {
    "pairs": lambda n: dict([(n, 1)]),
    "nested": lambda n: dict([((n, 1), 2)]),
    "zip": lambda n: dict(zip([n], "a", strict=True)),
    "enumerate": lambda n: dict(enumerate([n], n)),
    "update": lambda n: (made := {}, made.update([(n, 1)]))[0],
    "ordered": lambda n: collections.OrderedDict([(n, 1)]),
    "set": lambda n: {n, (n, 1)},
    "found in keys": lambda n: ((n, 1) in {(3, 1): 0}.keys(), (n, 1) in {(4, 1)}),
    "items and": lambda n: {"a": n}.items() & {("a", 4)},
    "items or": lambda n: [("a", 4)] | {"a": n}.items(),
    "items without": lambda n: {"a": n}.items() - {("a", 4), ("b", 1)},
    "items xor pairs": lambda n: {"a": n}.items() ^ zip("ab", {"a": n, "b": n}.values(), strict=True),
    "ordered items": lambda n: collections.OrderedDict(a=n).items() & {("a", 4)},
    "keys and values": lambda n: {4: n}.keys() & {"a": n}.values(),
    "items equal": lambda n: ({"a": n}.items() == {("a", 4)}, {("a", 4), ("b", 1)} > {"a": n}.items()),
    "items disjoint": lambda n: ({("a", 4)}.isdisjoint({"a": n}.items()), {4: 1}.keys().isdisjoint({"a": n}.values())),
    "intersection": lambda n: {("a", 4), 5}.intersection({"a": n}.items()),
    "update by two": lambda n: (made := set(), made.update({"a": n}.items(), {"a": n}.values()))[0],
    "from keys": lambda n: dict.fromkeys({"a": n}.values(), 1),
    "counted": lambda n: dict(collections.Counter({"a": n}.items())),
}


@pytest.mark.parametrize("way", WAYS)
def test_equals_eager(way: str) -> None:
    make = WAYS[way]
    compiled = stator.compile(lambda x, n: (x + 1, make(n)), backend="eager", fullgraph=True,
                              options={"strict": True})
    for n in (3, 4, 5):
        assert compiled(torch.ones(1), n)[1] == make(n)


TABLES: dict[str, Any] = {
    "dict": {3: "a", 7: "b", "x": 1, None: 2, 2.5: 3}, "counter": collections.Counter([2, 5]), "set": {4, 9},
    "frozen": frozenset([1, 2, 100]), "with a bool": {True, "k"}, "wide": set(range(0, 60, 3)),
}


@pytest.mark.parametrize("name", TABLES)
def test_found_in_a_table(name: str) -> None:
    table = TABLES[name]

    def ask(x: torch.Tensor, n: int) -> Any:
        return x + n, n in table, n not in table
    compiled = stator.compile(ask, backend="eager")
    for n in range(40, 0, -1):
        expected, found = ask(torch.ones(2), n), compiled(torch.ones(2), n)
        assert torch.equal(expected[0], found[0]) and expected[1:] == found[1:]


def test_numbers_that_are_in_no_table_share_a_graph() -> None:
    table = {"numbers": collections.Counter([2, 5])}

    def ask(x: torch.Tensor, n: int) -> Any:
        return x + n, n in table["numbers"]
    compiled, graphs = stator.compile(ask, backend="eager", fullgraph=True), []
    for n in (10, 11, 12, 13, 14):
        with events.record() as log:
            assert compiled(torch.ones(2), n)[1] is False
        graphs.append(sum(isinstance(event, events.CaptureFinished) for event in log))
    assert graphs == [1, 1, 0, 0, 0]
    table["numbers"][14] = 1
    assert compiled(torch.ones(2), 14)[1] is True and compiled(torch.ones(2), 13)[1] is False


def test_found_in_a_sequence() -> None:
    def ask(x: torch.Tensor, n: int, m: int) -> Any:
        return x + n, n in [m, m + 1, 5], n not in (n + 1, m), (n, 1) in [(m, 1)], [n] in [[m], [7]]

    compiled = stator.compile(ask, backend="eager", fullgraph=True, options={"strict": True})
    for n, m in ((2, 3), (3, 4), (5, 4), (6, 6), (7, 6), (9, 8)):
        expected, found = ask(torch.ones(2), n, m), compiled(torch.ones(2), n, m)
        assert torch.equal(expected[0], found[0]) and expected[1:] == found[1:]
