"""`list[int]()` makes a list; an object that can be told is told what it was called as."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

import stator


class Told:
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, value: Any) -> None:
        self.value = value


class Untold:
    __slots__ = ("value",)
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, value: Any) -> None:
        self.value = value


Outside = list[int]


def builtins(x: torch.Tensor) -> Any:
    return dict[str, Any](a=1), list[int]((1, 2)), Outside([3]), x + 1


def classes(x: torch.Tensor) -> Any:
    told, untold = Told[int](x), Untold[int](3)
    return told.value * 2, told.__orig_class__ == Told[int], untold.value, hasattr(untold, "__orig_class__")


def failing(x: torch.Tensor) -> Any:
    try:
        return list[int](1, 2, 3)
    except TypeError as error:
        return str(error), x


def attributes(x: torch.Tensor) -> Any:
    found = []
    for alias in (list[int], Told[int], Outside, dict[str, int]):
        for name in ("append", "__name__", "__origin__", "__args__", "__bases__", "__mro__", "__module__", "__doc__", "fromkeys",
                     "missing", "__getitem__", "__class__", "__copy__"):
            try:
                found.append(getattr(alias, name))
            except AttributeError as error:
                found.append(str(error))
    try:
        found.append(issubclass(list[int], object))
    except TypeError as error:  # since 3.13
        found.append(str(error))
    return found, Told[int].__init__ is Told.__init__, x + 1


@pytest.mark.parametrize("program", [builtins, classes, failing, attributes])
def test_equal_to_eager(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        assert repr(compiled(torch.ones(1))) == repr(program(torch.ones(1)))
