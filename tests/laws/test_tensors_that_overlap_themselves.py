"""Writes to inputs whose elements lie on one another: a compiler would write each element once, eager writes in order."""

from __future__ import annotations

import pytest
import torch

import stator


def strided(size: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    return torch.arange(30.0).as_strided(size, stride)


def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    before = x + 1
    x.add_(1)
    return before, x.clone()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layouts", [
    [((2, 2), (1, 4)), ((3, 2), (1, 4)), ((5, 2), (1, 4)), ((6, 2), (1, 4)), ((4, 2), (1, 4))],
    [((3, 3), (1, 1)), ((4, 3), (1, 1)), ((3, 4), (4, 1)), ((5, 4), (4, 1))],
    [((3, 2), (1, 2)), ((2, 2), (1, 2)), ((4, 2), (1, 2)), ((4, 2), (1, 4))],
])
def test_each_element_is_written_as_often_as_in_eager(
        layouts: list[tuple[tuple[int, int], tuple[int, int]]], dynamic: bool | None) -> None:
    compiled = stator.compile(program, backend="aot_eager", dynamic=dynamic)
    for size, stride in layouts:
        for left, right in zip(program(strided(size, stride)), compiled(strided(size, stride)), strict=True):
            assert torch.equal(left, right), (size, stride)
