"""Fields of a class, and facts that follow from its ancestors: both may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

READS: dict[str, Callable[[type], Any]] = {
    "doc": lambda cls: cls.__doc__,
    "name": lambda cls: cls.__name__,
    "qualname": lambda cls: cls.__qualname__,
    "module": lambda cls: cls.__module__,
    "annotations": lambda cls: cls.__annotations__,
    "abstract": lambda cls: getattr(cls, "__abstractmethods__", None),
    "base": lambda cls: cls.__base__.__name__,  # type: ignore[union-attr]
    "bases": lambda cls: [base.__name__ for base in cls.__bases__],
    "order": lambda cls: [each.__name__ for each in cls.__mro__],
    "first ancestor": lambda cls: cls.__base__ is First,
    "inherited": lambda cls: cls.value,  # type: ignore[attr-defined]
    "inherited by an object": lambda cls: cls().value,
    "instance": lambda cls: (isinstance(cls(), First), isinstance(cls(), Second)),
    "subclass": lambda cls: (issubclass(cls, First), issubclass(cls, Second)),
    "class made inside": lambda cls: type("Below", (cls,), {}).value,  # type: ignore[attr-defined]
    "past the metaclass": lambda cls: (type.__getattribute__(cls, "__doc__"), type.__getattribute__(cls, "__name__")),
}
CHANGES: dict[str, tuple[str, Any]] = {
    "doc": ("__doc__", "other words"),
    "name": ("__name__", "Other"),
    "qualname": ("__qualname__", "Some.other"),
    "module": ("__module__", "elsewhere"),
    "annotations": ("__annotations__", {"b": str}),
    "abstract": ("__abstractmethods__", frozenset({"value"})),
}


class First:
    value = 1


class Second:
    value = 2


def new_class() -> type:
    class Subject(First):
        """Its words."""

        a: int

    return Subject


def story(read: Callable[[type], Any], change: tuple[str, Any], run: Callable[..., Any]) -> list[Any]:
    """Reads before a change, after it, and once more."""
    cls = new_class()

    def program(x: torch.Tensor) -> Any:
        return x + 1, read(cls)

    program = run(program)
    told = [program(torch.ones(2))[1]]
    setattr(cls, *change)
    return [*told, program(torch.ones(2))[1], program(torch.ones(2))[1]]


def compiled(program: Callable[..., Any]) -> Any:
    return stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})


@pytest.mark.parametrize("name", READS)
def test_a_change_is_seen(name: str) -> None:
    change = CHANGES.get(name, ("__bases__", (Second,)))
    assert story(READS[name], change, compiled) == story(READS[name], change, lambda program: program)


@pytest.mark.parametrize("name", ["doc", "name"])
def test_a_change_is_seen_past_the_metaclass(name: str) -> None:
    read = READS["past the metaclass"]
    assert story(read, CHANGES[name], compiled) == story(read, CHANGES[name], lambda program: program)


class Plain(Exception):
    pass


class Special(Exception):
    pass


def test_which_handler_takes_an_exception_follows_from_its_ancestors() -> None:
    class Raised(Plain):
        pass

    def program(x: torch.Tensor) -> Any:
        try:
            raise Raised
        except Plain:
            return x + 1
        except Special:
            return x + 2

    def grouped(x: torch.Tensor) -> Any:
        told = []
        try:
            raise ExceptionGroup("outer", [ExceptionGroup("inner", [Raised()]), KeyError()])
        except* Plain:
            told.append(1)
        except* Special:
            told.append(2)
        except* KeyError:
            told.append(3)
        return x + 1, told

    first, second = compiled(program), compiled(grouped)
    assert first(torch.zeros(1)).item() == 1 and second(torch.zeros(1))[1] == [1, 3]
    Raised.__bases__ = (Special,)
    assert first(torch.zeros(1)).item() == 2 and second(torch.zeros(1))[1] == [2, 3]
