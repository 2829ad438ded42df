"""functools.wraps of an lru_cache, and its `__dict__`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

import stator


@functools.lru_cache
def doubled(n: int) -> int:
    """Twice n."""
    return n * 2


doubled.extra = 5  # type: ignore[attr-defined]


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def wrapped(x: torch.Tensor) -> tuple[Any, ...]:
    call: Any = wrapping(doubled)
    return call(3) * x, call.__name__, call.__doc__, call.__qualname__, call.extra, call.__wrapped__ is doubled


def changed(x: torch.Tensor) -> tuple[Any, ...]:
    vars(doubled)["extra"] = vars(doubled)["extra"] + 1
    return x, doubled.extra  # type: ignore[attr-defined]


def test_attributes_are_read_under_a_guard() -> None:
    compiled = stator.compile(wrapped, backend="eager", fullgraph=True)
    for extra in (5, 5, 7):
        doubled.extra = extra  # type: ignore[attr-defined]
        assert str(compiled(torch.ones(2))) == str(wrapped(torch.ones(2)))


def test_attributes_are_written_back() -> None:
    compiled = stator.compile(changed, backend="eager")
    for extra in (5, 9):
        doubled.extra = extra  # type: ignore[attr-defined]
        assert compiled(torch.ones(2))[1] == vars(doubled)["extra"] == extra + 1
