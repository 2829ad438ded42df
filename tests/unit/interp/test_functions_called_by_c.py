"""Functions that C code calls: their defaults, which CPython fills in, and functions that iterators carry over a break."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.comparison import Programs

SEEN: list[int] = []
PROGRAMS = Programs()
CARRIED = Programs()


def noting(value: int, seen: list[int] = SEEN) -> int:
    seen.append(value)
    return -value


def noting_by_keyword(value: int, *, seen: list[int] = SEEN) -> int:
    seen.append(value)
    return -value


def taking_two(total: int, value: int = 1) -> int:
    return total * 10 + value


@PROGRAMS
def sort(x: torch.Tensor, n: int) -> Any:
    return sorted([1, 3, n], key=noting), min([2, 1], key=noting_by_keyword), x + 1


@PROGRAMS
def local_default(x: torch.Tensor, n: int) -> Any:
    above = lambda value, limit=n: value > limit  # noqa: E731
    stator.graph_break()
    return list(filter(above, [1, 2, 3, 4])), x + 1


@PROGRAMS
def local_keyword_default(x: torch.Tensor, n: int) -> Any:
    add = lambda value, *, by=n: value + by  # noqa: E731
    stator.graph_break()
    return list(map(add, [1, 2])), x + 1


@PROGRAMS
def passed_though_equal_to_the_default(x: torch.Tensor, n: int) -> Any:
    def join(total: int, value: int = n) -> int:
        return total * 10 + value

    stator.graph_break()
    return functools.reduce(join, [1, 2, 3]), functools.reduce(taking_two, [1, 1, n]), x + 1


@PROGRAMS
def tensor_default(x: torch.Tensor, n: int) -> Any:
    scale = x * n
    return list(map(lambda value, by=scale: value * by, [x, x + 1]))


@CARRIED
def mapped(x: torch.Tensor, n: int) -> Any:
    add, keep = map(lambda value: value + n, [1, 2]), filter(lambda value: value > 1, [1, 2])
    stator.graph_break()
    return list(add), list(keep), x + 1


@CARRIED
def grouped(x: torch.Tensor, n: int) -> Any:
    groups = itertools.groupby([1, 1, 2, 4], key=lambda value: value > 1)
    stator.graph_break()
    return [(key, list(group)) for key, group in groups], x + 1


@CARRIED
def chosen(x: torch.Tensor, n: int) -> Any:
    low, high = itertools.takewhile(lambda value: value < 2, [1, 2]), itertools.dropwhile(lambda value: value < 2, [1, 2])
    sums, pairs = itertools.accumulate([1, 2], lambda a, b: a + b), itertools.starmap(lambda a, b: a + b, [(1, 2)])
    odd = itertools.filterfalse(lambda value: value % 2, [1, 2])
    stator.graph_break()
    return list(low), list(high), list(sums), list(pairs), list(odd), x + 1


@CARRIED
def begun(x: torch.Tensor, n: int) -> Any:
    values = map(lambda value: value + 1, [1, 2, 3])
    first = next(values)
    stator.graph_break()
    second = next(values)
    stator.graph_break()
    return first, second, list(values), x + 1


def calls(function: Any, numbers: list[int]) -> list[Any]:
    SEEN.clear()
    return [(repr(function(torch.ones(2), n)), SEEN[:]) for n in numbers]


@pytest.mark.parametrize("name", [*PROGRAMS, *CARRIED])
def test_defaults_and_carried_functions_equal_eager(name: str) -> None:
    program = {**PROGRAMS, **CARRIED}[name]
    numbers = [2, 2, 3, 4, 2, 1, 5]
    assert calls(stator.compile(program, backend="eager"), numbers) == calls(program, numbers)


@pytest.mark.parametrize("name", CARRIED)
def test_a_function_in_an_iterator_is_known_by_its_code(name: str) -> None:
    """It is made anew in each call."""
    compiled = stator.compile(CARRIED[name], backend="eager")
    compiled(torch.ones(2), 2)
    with events.record() as log:
        compiled(torch.ones(2), 2)
        compiled(torch.ones(2), 2)
    assert not [event for event in log if isinstance(event, events.CaptureStarted)]


class Partial(functools.partial):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("cls", [functools.partial, Partial])
def test_keywords_of_a_partial_that_are_set_behind_a_break(cls: Any) -> None:
    def program(x: Any) -> Any:
        made = cls(dict, a=1)
        stator.graph_break()
        made.keywords["b"] = 2
        return made(c=3), made.keywords, repr(made).partition(", ")[2], x + 1

    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        assert repr(compiled(torch.ones(1))) == repr(program(torch.ones(1)))
