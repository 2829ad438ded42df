"""C code asks for a length before it iterates: the calls of `__iter__`, `__len__`, `__length_hint__` and `__next__` are those of eager."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

ASKED: list[Any] = []


class Sized:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        ASKED.append("iter")
        return iter(range(self.n))

    def __len__(self) -> int:
        ASKED.append("len")
        return self.n


class Hinted:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        ASKED.append("iter")
        return self

    def __next__(self) -> int:
        ASKED.append("next")
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n

    def __length_hint__(self) -> int:
        ASKED.append("hint")
        return max(self.n, 0)


class Indexed:
    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, index: int) -> int:
        ASKED.append(index)
        if index >= self.n:
            raise IndexError
        return index

    def __len__(self) -> int:
        ASKED.append("len")
        return self.n


class Refusing(Sized):
    def __len__(self) -> int:
        raise KeyError("len")


def given(*args: Any, **named: Any) -> Any:
    return args


USES: dict[str, Callable[[Any], Any]] = {
    "list": lambda o: [*o], "tuple": lambda o: (1, *o), "set": lambda o: sorted({*o}), "call": lambda o: given(*o), "call with more": lambda o: given(0, *o, k=1),
    "list()": lambda o: list(o), "extend": lambda o: [1].__iadd__(o), "in": lambda o: 2 in o, "deque": lambda o: collections.deque(o), "sum": lambda o: sum(o),
    "pair": lambda o: next(iter(o)), "sorted": lambda o: sorted(o), "two": lambda o: [*o, *o], "print": lambda o: print(*o, end=""),
}  # fmt: skip


@pytest.mark.parametrize("cls", [Sized, Hinted, Indexed, Refusing])
@pytest.mark.parametrize("use", USES)
def test_what_is_asked_of_an_iterable(use: str, cls: Any) -> None:
    def program(x: Any, n: int) -> Any:
        try:
            return USES[use](cls(n)), x + 1
        except KeyError as error:
            return str(error), x

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for n in (3, 3, 2, 4):
        results = []
        for subject in (program, compiled):
            ASKED.clear()
            results.append((subject(torch.ones(2), n)[0], list(ASKED)))
        assert results[0] == results[1]


def test_json_writes_a_number_that_varies() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def program(x: Any, p: Any) -> Any:
        return json.dumps({"k": p, "l": [p]}, default=lambda o: {"at": [o.x, (o.x,)]} if p.x > 2 else o.x), x + p.x

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for n in (3, 4, 5, 1, 6):
        assert compiled(torch.ones(2), Point(n))[0] == program(torch.ones(2), Point(n))[0]
