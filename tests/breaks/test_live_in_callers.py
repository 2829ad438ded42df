"""A caller keeps the locals that it may need whichever way its callee ends: with a value, at the end, by an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0, 3.0])


def raises(x: torch.Tensor) -> torch.Tensor:
    stator.graph_break()
    raise ValueError(x.shape[0])


def ends_late(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x
    stator.graph_break()


def outer(x: torch.Tensor, scale: int) -> Any:
    kept = x
    for _ in range(1):
        kept = yield from ends_late(x)
    return kept, scale


def returned_out_of_a_try(x: torch.Tensor) -> Any:
    y = x + 1
    try:
        return raises(x)
    except ValueError:
        return y * 2


def returned_out_of_a_with(x: torch.Tensor) -> Any:
    y = x + 1
    try:
        with torch.no_grad():
            return raises(y)
    finally:
        x.add_(y)


def assigned_in_the_body_only(x: torch.Tensor) -> Any:
    for each in ends_late(x):
        y = each * 2
    return y


def assigned_in_the_body_of_a_delegate(x: torch.Tensor) -> Any:
    y = x
    for each in outer(x, 3):
        y = each + 1
    return y


def needed_after_the_delegate(x: torch.Tensor) -> Any:
    it = outer(x, 3)
    first = next(it)
    try:
        next(it)
    except StopIteration as stop:
        return first, stop.value
    return None


PROGRAMS = (returned_out_of_a_try, returned_out_of_a_with, assigned_in_the_body_only, assigned_in_the_body_of_a_delegate,
            needed_after_the_delegate)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_what_a_caller_may_need_is_there(fn: Callable[[torch.Tensor], Any]) -> None:
    compare(fn, [(X,), (X,)])
