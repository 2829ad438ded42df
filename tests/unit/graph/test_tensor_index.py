"""Indices of bytes: masks, with a warning, as in eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator


def assigned(x: Any, mask: Any) -> Any:
    y = x.clone()
    y[mask.byte()] = x[mask.byte()] * 2
    return y


def selected(x: Any, mask: Any) -> Any:
    return x[mask.byte()].sum()


def written_between(x: Any, mask: Any) -> Any:
    index = mask.byte()
    first = x[index].sum()
    index[0] = 1
    return first + x[index].sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [assigned, selected, written_between], ids=lambda each: each.__name__)
def test_masks_of_bytes(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=backend == "eager")
    for seed in (0, 1):
        torch.manual_seed(seed)
        x, mask = torch.randn(3, 3), (torch.randn(3, 3) > 0).float()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = compiled(x, mask)
        assert any("torch.uint8" in str(each.message) for each in said)
        torch.testing.assert_close(found, program(x, mask))


def test_a_range_of_numbers() -> None:
    def f(x: Any) -> Any:
        return x[torch.LongTensor(range(x.size(0))), torch.LongTensor(range(2, -1, -1))]

    compiled = stator.compile(f, backend="eager", fullgraph=True)
    for seed in (0, 1):
        torch.manual_seed(seed)
        x = torch.randn(3, 3)
        torch.testing.assert_close(compiled(x), f(x))
