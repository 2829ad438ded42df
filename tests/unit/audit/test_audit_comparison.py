"""Differences that an audit reports, and their text."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy
import pytest
import torch

import stator
from stator import events
from stator.backends.registry import _backends


def program(x: Any) -> Any:
    return x * 2


def differences(backend: Any, x: torch.Tensor) -> list[tuple[str, str]]:
    """Differences that one audited call reports."""
    compiled = stator.compile(program, backend=backend, options={"audit": 1})
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(x)
    assert sum(isinstance(each, events.Audited) for each in log) == 1
    return [pair for each in log if isinstance(each, events.AuditDifference) for pair in each.differences]


def nearly_right(gm: Any, example_inputs: Any) -> Any:
    """Wrong in the last bits."""
    return lambda *args: tuple(value * (1 + 1e-7) for value in gm.forward(*args))


def wrong(gm: Any, example_inputs: Any) -> Any:
    return lambda *args: tuple(value + 1 for value in gm.forward(*args))


@pytest.mark.parametrize(("x", "said"), [
    (torch.tensor([1.0, -2.0]), "eager has [2.0, -4.0], compiled has [3.0, -3.0]"),
    (torch.tensor([3, 4]), "eager has [6, 8], compiled has [7, 9]"),
    (torch.arange(8), "eager has [0, 2, 4, 6, 8, 10, ...], compiled has [1, 3, 5, 7, 9, 11, ...]"),
])
def test_numbers_are_shown(x: torch.Tensor, said: str) -> None:
    assert differences(wrong, x) == [("the result", said)]


def test_last_bits_count_where_the_backend_computes_as_eager_does() -> None:
    x = torch.tensor([1.1, -2.3])
    assert [path for path, _ in differences(nearly_right, x)] == ["the result"]
    stator.register_backend(nearly_right)
    try:
        assert differences("nearly_right", x) == [], "a backend of that kind rounds as it likes"
    finally:
        del _backends["nearly_right"]


@pytest.mark.parametrize(("draw", "stream"), [
    (lambda: torch.rand(1), "torch's random stream"), (random.random, "Python's random stream"),
    (numpy.random.rand, "numpy's random stream"),
])
def test_random_streams_are_compared(draw: Any, stream: str) -> None:
    def draws(gm: Any, example_inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            draw()
            return gm.forward(*args)
        return run

    assert [path for path, _ in differences(draws, torch.ones(2))] == [stream]
