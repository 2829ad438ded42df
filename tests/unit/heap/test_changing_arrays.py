"""numpy arrays and scalars whose contents change from call to call are no longer facts after a few of them."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

import stator
from stator import events


def reduced(array: numpy.ndarray, x: torch.Tensor) -> Any:
    return numpy.sum(array ** 2) + array.mean(), torch.from_numpy(array).sum() * x


def scaled(array: numpy.ndarray, x: torch.Tensor) -> Any:
    return array * 2 + numpy.ones(3), x + 1


def through_a_tensor(array: numpy.ndarray, x: torch.Tensor) -> Any:
    return torch.from_numpy(numpy.sin(torch.from_numpy(array).numpy()) + 1) * 2


def written(array: numpy.ndarray, x: torch.Tensor) -> Any:
    array += 1
    return x * float(array[0])


def scalar(number: Any, x: torch.Tensor) -> Any:
    return x * 2, number, number + 1


def arrays(count: int) -> list[numpy.ndarray]:
    return [numpy.arange(3.0) + i for i in range(count)]


def run(program: Any, values: list[Any]) -> list[int]:
    """Equal to eager each time; how many captures each call took."""
    compiled, captures = stator.compile(program, backend="eager"), []
    for value in values:
        ours, theirs = (value.copy() if type(value) is numpy.ndarray else value for _ in range(2))
        with events.record() as log:
            found = compiled(ours, torch.ones(2))
        assert repr(found) == repr(program(theirs, torch.ones(2)))
        assert repr(ours) == repr(theirs)
        assert not any(isinstance(event, events.EagerFallback) for event in log)
        captures.append(sum(isinstance(event, events.CaptureFinished) for event in log))
    return captures


@pytest.mark.parametrize("program", [reduced, scaled, through_a_tensor, written])
def test_arrays_that_change(program: Any) -> None:
    captures = run(program, arrays(20))
    assert captures[-4:] == [0, 0, 0, 0], captures


def test_scalars_that_change() -> None:
    captures = run(scalar, [numpy.float64(i) / 2 for i in range(14)])
    assert captures[-4:] == [0, 0, 0, 0], captures
    assert sum(captures) <= 8


def test_contents_stay_facts_where_breaks_are_errors() -> None:
    compiled = stator.compile(scaled, backend="eager", fullgraph=True)
    for array in arrays(5):
        assert numpy.array_equal(compiled(array, torch.ones(2))[0], array * 2 + 1)


def test_another_type_at_the_place_of_a_scalar() -> None:
    """Learning from a failed guard runs no code of the program's objects."""
    class Number:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"asked for {name}")

    compiled = stator.compile(lambda number, x: (number, x + 1), backend="eager")
    for number in (numpy.float32(1), numpy.float32(2), Number()):
        assert compiled(number, torch.ones(1))[0] is number
