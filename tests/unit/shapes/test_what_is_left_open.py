"""Which sizes, lengths and numbers are constants and which are symbols: by the marks, by `dynamic=`, by where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from counting import run

import stator
from stator import events

X = torch.arange(3.0)


def compiles(mark: Any, dynamic: bool | None) -> int:
    compiled = stator.compile(lambda x: x * x.shape[0], backend="eager", dynamic=dynamic)
    with events.record() as log:
        for size in (3, 4, 5, 6):
            x = torch.ones(size)
            mark(x)
            compiled(x)
    return sum(isinstance(event, events.CaptureFinished) for event in log)


@pytest.mark.parametrize(("mark", "dynamic", "count"), [
    (lambda x: None, None, 2), (lambda x: None, True, 1), (lambda x: None, False, 4),
    (stator.mark_static, True, 4), (lambda x: stator.mark_static(x, 0), None, 4), (stator.mark_static, None, 4),
    (lambda x: stator.maybe_mark_dynamic(x, 0), None, 1),
])  # fmt: skip
def test_marks(mark: Any, dynamic: bool | None, count: int) -> None:
    assert compiles(mark, dynamic) == count


def length(x: Any, xs: Any) -> Any:
    return x * len(xs)


def first(x: Any, xs: Any) -> Any:
    return x * xs[0]


def attribute(x: Any, thing: Any) -> Any:
    return x * thing.n


LISTS = [[1], [2, 2], [3, 3, 3]]
TUPLES = [(3,), (4,), (5,)]


class Thing:
    def __init__(self, n: int) -> None:
        self.n = n


THINGS = [Thing(n) for n in (3, 4, 5)]


@pytest.mark.parametrize(("fn", "values", "counts"), [
    (length, LISTS, (2, 1, 3)), (first, TUPLES, (2, 1, 3)), (attribute, THINGS, (2, 2, 3)),
], ids=["length", "tuple", "attribute"])  # fmt: skip
def test_places(fn: Any, values: Any, counts: Any) -> None:
    """None learns from the first change, True leaves arguments open; what hangs on objects is a constant at first."""
    for dynamic, count in zip((None, True, False), counts, strict=True):
        assert run(fn, [(X, value) for value in values], dynamic=dynamic)[0] == count, dynamic


@pytest.mark.parametrize(("is_static", "count"), [(False, 2), (True, 4)])
def test_numbers_of_a_class_of_modules(is_static: bool, count: int) -> None:
    class Scale(torch.nn.Module):
        def __init__(self, factor: int) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    cls = stator.mark_static(Scale) if is_static else Scale
    compiled = stator.compile(lambda module, x: module(x), backend="eager")
    with events.record() as log:
        for factor in (3, 4, 5, 6):
            assert torch.equal(compiled(cls(factor), X), X * factor)
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == count
