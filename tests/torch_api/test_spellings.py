"""Arguments that FX's code cannot say as the program says them, and lists of tensors that are no sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def uniform(x: Any) -> Any:
    return x.uniform_(**{"from": -1, "to": 1})


def integers(x: Any) -> Any:
    return x.random_(**{"from": 2, "to": 9}), torch.Tensor.random_(x.clone(), **{"from": 2}, to=4)


def between(x: Any) -> Any:
    return x.random_(-3, 5), x.long().random_(0, 100), (x > 0).random_(0, 2)


def sorted_into(x: Any) -> Any:
    values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    first, place = torch.tensor(0.0), torch.tensor(0)
    torch.sort(x, out=(values, places))
    torch.max(x, 0, out=(first, place))
    return values, places, first, place


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [uniform, integers, between, sorted_into])
def test_spelling(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=True, options={"strict": True})
    for size in (3, 4, 5):
        results = []
        for run in (program, compiled):
            torch.manual_seed(size)
            x = torch.randn(size)
            results.append((run(x), x))
        assert str(results[0]) == str(results[1])


def test_random_numbers_between_bounds_with_inductor() -> None:
    x = stator.compile(lambda x: x.random_(-3, 5) + 1, fullgraph=True, options={"strict": True})(torch.zeros(64))
    assert ((x >= -2) & (x < 6) & (x == x.round())).all() and len(x.unique()) > 4
