"""Numbers that are left open become keys: what hashes them is told the number."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

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
