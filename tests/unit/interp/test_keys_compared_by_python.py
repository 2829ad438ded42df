"""Dicts whose keys have an `__eq__` in Python, asked for a number or a text of equal hash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

ASKED: list[tuple[Any, Any]] = []


class Key:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        ASKED.append((self.value, other))
        if self.value == "raises":
            raise KeyError("asked")
        return bool(self.value == other)


def stored(table: Any, key: Any) -> Any:
    table[key] = "stored"


def removed(table: Any, key: Any) -> Any:
    del table[key]


USES: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda table, key: table[key], "in": lambda table, key: (key in table, "absent" not in table), "get": lambda table, key: table.get(key, 0),
    "setdefault": lambda table, key: table.setdefault(key, 4), "pop": lambda table, key: table.pop(key, None), "store": stored, "remove": removed,
}  # fmt: skip


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("key", [1, "a", "raises", 2])
@pytest.mark.parametrize("use", USES)
def test_the_key_is_asked(use: str, key: Any, outside: bool) -> None:
    def program(x: Any, table: Any) -> Any:
        if not outside:
            table = {Key(1): "one", Key("a"): "A", Key("raises"): 0}
        try:
            return USES[use](table, key), len(table), list(table.values()), x + 1
        except KeyError as error:
            return str(error), len(table), x + 1

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(3):
        results = []
        for subject in (program, compiled):
            table = {Key(1): "one", Key("a"): "A", Key("raises"): 0}
            ASKED.clear()
            found = subject(torch.ones(2), table)
            asked = list(ASKED) if not outside or use not in ("store", "setdefault", "pop", "remove") else []  # written back by asking again
            results.append((found[:-1], list(table.values()), asked))
        assert results[0] == results[1]
