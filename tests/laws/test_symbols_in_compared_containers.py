"""C code that compares containers meets a symbolic number beside an enum, a bool or a subclass of int or float.

In:  programs over an int that becomes symbolic.  Out: the value of eager code, for equal and for other numbers.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.interp.numbers import symbolic_numbers


class Colour(enum.IntEnum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Whole(int):
    pass


class Real(float):
    pass


@dataclasses.dataclass(order=True)
class Pair:
    left: Any
    right: Any


PROGRAMS: dict[str, Callable[[int], Any]] = {
    "an enum in a tuple": lambda n: ((Colour.RED,) == (n,), (n,) != (Colour.GREEN,)),
    "an enum in an ordered tuple": lambda n: (Colour(1 + n % 3), 1) < (n, 2),
    "an enum in a list": lambda n: ([Colour.RED] == [n], [n, 1] >= [Colour.GREEN, 2]),
    "an enum in a dict": lambda n: {"a": n} == {"a": Colour.RED},
    "an enum in a dataclass": lambda n: (Pair(Colour.RED, 1) == Pair(n, 1), Pair(Colour.RED, 1) < Pair(n, 2)),
    "nested": lambda n: ([(n, [Colour.RED])] == [(n, [n])], ((n,), 1) == ((Colour.RED,), 1)),
    "a subclass of int": lambda n: ((Whole(1),) == (n,), (Whole(1),) < (n,)),
    "a subclass of float": lambda n: ((Real(1.0),) == (n,), (n + 0.5,) == (Real(1.5),)),
    "a bool": lambda n: ((True,) == (n,), (n,) == (True,), (False, 1) < (n, 1)),
    "a complex number": lambda n: (1 + 0j,) == (n,),
}


def check(program: Callable[[int], Any]) -> None:
    compiled = stator.compile(lambda x, n: (x + 1, program(n))[1], backend="eager", options={"strict": True})
    for n in (4, 5, 1, 0, 2, 3, -1, 1):
        assert compiled(torch.ones(2), n) == program(n)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compared_containers(name: str) -> None:
    check(PROGRAMS[name])


def test_plain_numbers_stay_symbolic() -> None:
    compiled = stator.compile(lambda x, n: x + 1 if (n, 2, "a") == (n + 1, 2, "a") else x, backend="eager")
    with stator.events.record() as log:
        for n in range(4, 10):
            compiled(torch.ones(2), n)
    assert sum(type(event).__name__ == "CaptureFinished" for event in log) == 2


def test_switch_symbols_beside_other_numbers(monkeypatch: Any) -> None:
    monkeypatch.setattr(symbolic_numbers, "mixes_numbers", lambda left, right: False)
    with pytest.raises(AssertionError):
        check(PROGRAMS["an enum in a tuple"])
