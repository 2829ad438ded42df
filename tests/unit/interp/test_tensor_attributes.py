"""Attributes that captured code sets on tensors from outside are theirs afterwards, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

Tensors = tuple[torch.Tensor, ...]


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.factor = y  # type: ignore[attr-defined]
    return x * x.factor  # type: ignore[attr-defined]


def crosswise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.a = y + 1  # type: ignore[attr-defined]
    y.b = x  # type: ignore[attr-defined]
    return x.a * 2  # type: ignore[attr-defined]


def once(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if hasattr(x, "mark"):
        return x * x.mark
    x.mark = 3  # type: ignore[attr-defined]
    return x


def counted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.n = getattr(x, "n", 0) + 1  # type: ignore[attr-defined]
    return y + x.n


def across_a_break(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.items = [1]  # type: ignore[attr-defined]
    stator.graph_break()
    x.items.append(2)  # type: ignore[attr-defined]
    return y + len(x.items)  # type: ignore[attr-defined]


def before_an_error(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.seen = True  # type: ignore[attr-defined]
    raise ValueError("after it")


def marked_inside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    stator.mark_static(x, 0)
    return x + y


def made_and_forgotten(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z.note = 1  # type: ignore[attr-defined]
    del z.note  # type: ignore[attr-defined]
    return z, hasattr(z, "note")


def outcome(function: Callable[..., Any], tensors: Tensors) -> tuple[str, list[dict[str, str]]]:
    try:
        said = str(function(*tensors))
    except ValueError as error:
        said = repr(error)
    return said, [{name: str(value) for name, value in vars(each).items()} for each in tensors]


PROGRAMS = (product, crosswise, once, counted, across_a_break, before_an_error, marked_inside, made_and_forgotten)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("make", [torch.Tensor.clone, lambda x: torch.nn.Parameter(x.clone())])
def test_as_in_eager(program: Callable[..., Any], make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    mine = tuple(make(torch.full((2,), value)) for value in (2.0, 3.0))
    theirs = tuple(make(torch.full((2,), value)) for value in (2.0, 3.0))
    compiled = stator.compile(program, backend="eager")
    for _ in range(4):
        assert outcome(compiled, mine) == outcome(program, theirs)


def test_one_tensor_under_two_names() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> int:
        x.z = 1  # type: ignore[attr-defined]
        return getattr(y, "z", 0)

    compiled = stator.compile(program, backend="eager")
    x = torch.ones(2)
    assert compiled(torch.ones(2), torch.ones(2)) == 0
    assert compiled(x, x) == 1
    assert compiled(torch.ones(2), torch.ones(2)) == 0


def test_the_object_itself_is_kept() -> None:
    def program(x: torch.Tensor, owner: list[int]) -> torch.Tensor:
        x.owner = owner  # type: ignore[attr-defined]
        return x + 1

    x, owner = torch.ones(2), [1]
    stator.compile(program, backend="eager", fullgraph=True)(x, owner)
    assert x.owner is owner  # type: ignore[attr-defined]
