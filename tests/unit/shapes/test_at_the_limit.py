"""Numbers that are left open at the recompile limit decide nothing that nobody checks.

Each program misses its guards in every turn of a loop with a graph break; from the limit on its counter is a number
that only the call knows.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import stator


class Made:
    count = 0

    def __init__(self) -> None:
        Made.count += 1


def counted_before_a_raise(n: int, flag: bool) -> None:
    def loop(q: int, r: int = n) -> None:
        turn = 0
        while (turn := turn + 1) < 4 and flag:
            stator.graph_break()
            [Made(), Made()]
        raise ValueError("a")

    loop(1)


class Sized:
    def __init__(self, x: int) -> None:
        self.x = x

    def __len__(self) -> int:
        return abs(self.x) + 1


def length_of_an_open_number(n: int, items: list[Any]) -> int:
    sized, total = Sized(n), 0
    try:
        for _ in list(items)[:4]:
            total += len(sized)
            stator.graph_break()
        else:
            items.index(-3)
    except ValueError as error:
        return total + len(str(error))
    return total


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_branch_that_raises_is_no_assertion_on_an_open_number() -> None:
    compiled = stator.compile(counted_before_a_raise, backend="eager")
    for n, flag in [(1, True), (1, True), (2, True), (3, True), (4, False), (5, True)]:
        before = Made.count
        with pytest.raises(ValueError, match="a"):
            compiled(n, flag)
        assert Made.count - before == (6 if flag else 0), (n, flag)


def test_a_length_that_torch_will_not_guess_is_no_exception_of_the_program() -> None:
    compiled = stator.compile(length_of_an_open_number, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, items in [(3, [1, 2]), (4, [1, 2, 3]), (-2, [4]), (7, [1, 2, 3, 4, 5]), (9, [7, -1, 2]), (8, [1])]:
            assert compiled(n, list(items)) == length_of_an_open_number(n, list(items)), n
