"""Messages of C code and of the interpreter describe the program's values, not their stand-ins."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


def told(function: Callable[[], Any]) -> str:
    try:
        return repr(function())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "join of a view": lambda n: "-".join({"a": n}.values()),
    "len": lambda n: len(n),
    "max of a view": lambda n: max({"a": n, "b": "s"}.values()),
    "sorted view": lambda n: sorted({"a": n, "b": "s"}.values()),
    "sum of a view": lambda n: sum(collections.OrderedDict(a=n, b="s").values()),
    "sum of a chain": lambda n: sum(itertools.chain([n], ["s"])),
    "two stars": lambda n: {**n},
    "star": lambda n: [*n],
    "iter": lambda n: iter(n),
    "called": lambda n: n(),
    "item": lambda n: n[0],
    "map of len": lambda n: list(map(len, {"a": n}.values())),
    "unbound method": lambda n: list.append(n, 1),
    "isinstance of no class": lambda n: isinstance(n, 3),
    "attribute set": lambda n: setattr(n, "a", 1),
    "attribute deleted": lambda n: delattr(n, "a"),
    "vars": lambda n: vars(n),
    "operator": lambda n: operator.add(n, "s"),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("of", [lambda n: n, lambda n: n / 4], ids=["int", "float"])
def test_of_numbers_left_open(name: str, of: Callable[[Any], Any]) -> None:
    def program(n: int, x: torch.Tensor) -> Any:
        return told(lambda: NUMBERS[name](of(n))), x + 1

    compiled = stator.compile(program, backend="eager")
    for n in (5, 6, 7, 8):
        assert compiled(n, torch.ones(2))[0] == program(n, torch.ones(2))[0]


@pytest.mark.parametrize("use", [lambda x: sum({"x": x, "y": "s"}.values()), lambda x: sum([x, "s"]),
                                 lambda x: min({"x": x.sum(), "y": "s"}.values()), lambda x: "s" @ x])
def test_of_tensors(use: Callable[[Any], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        return told(lambda: use(x)), x + 1

    assert stator.compile(program, backend="eager")(torch.ones(2))[0] == program(torch.ones(2))[0]


def test_vars_of_an_object_whose_lookup_fails() -> None:
    class Closed:
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"no {name}")

    def program(x: torch.Tensor) -> Any:
        return told(lambda: vars(Closed())), x + 1

    assert stator.compile(program, backend="eager")(torch.ones(2))[0] == program(torch.ones(2))[0]


def test_what_the_program_says_itself_stays() -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            raise TypeError("no SymInt, no FakeTensor")
        except TypeError as error:
            return str(error), x + 1

    assert stator.compile(program, backend="eager", fullgraph=True)(torch.ones(2))[0] == "no SymInt, no FakeTensor"
