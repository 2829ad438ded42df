"""A sum of numbers from outside stays right when a guard makes its parts one, or a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

X = torch.tensor([1.0, 2.0])


def parts_become_one(a: int, b: int, c: int, x: torch.Tensor) -> Any:
    s = a + b
    return (s + c, c + s, x * (s + c)) if a == b else x


def sum_becomes_a_constant(a: int, b: int, c: int, x: torch.Tensor) -> Any:
    s = a + b
    return (s + c, x * (c + s)) if s == 12 else x


def two_sums(a: int, b: int, c: int, x: torch.Tensor) -> Any:
    s, t = a + b, b + c
    return (s + t, t + s, x * (s + t)) if a == b else x


def sum_becomes_a_multiple(a: int, b: int, c: int, x: torch.Tensor) -> Any:
    s = a + b
    return (s + c, x * (s + c)) if a == 2 * b else x


@pytest.mark.parametrize("fn", [parts_become_one, sum_becomes_a_constant, two_sums, sum_becomes_a_multiple])
def test_a_sum_whose_parts_are_related_afterwards(fn: Callable[..., Any]) -> None:
    compiled = stator.compile(fn, backend="eager", dynamic=True, options={"strict": True})
    for numbers in ((6, 6, 3), (8, 4, 5), (7, 7, 9), (4, 8, 3), (10, 5, 2)):
        torch.testing.assert_close(compiled(*numbers, X), fn(*numbers, X), rtol=0, atol=0)
