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
}


@pytest.mark.parametrize("way", WAYS)
def test_equals_eager(way: str) -> None:
    make = WAYS[way]
    compiled = stator.compile(lambda x, n: (x + 1, make(n)), backend="eager", fullgraph=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(1), n)[1] == make(n)
