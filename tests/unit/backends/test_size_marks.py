"""Compiled calls leave no mark on tensors with symbolic sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator

BACKENDS = ("eager", "aot_eager")


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_and_results_of_training_are_unmarked(backend: str) -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * w).sin(), x

    compiled = stator.compile(step, backend=backend, dynamic=True)
    for size in (4, 5):
        x, w = torch.randn(size, requires_grad=True), torch.randn(size, requires_grad=True)
        results = compiled(x, w)
        results[0].sum().backward()
        assert [vars(each) for each in (x, w, *results)] == [{}] * 4
        assert torch.allclose(w.grad, x * (x * w).cos())


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_of_unknown_sizes_are_unmarked(backend: str) -> None:
    compiled = stator.compile(torch.nonzero, backend=backend)
    found = compiled(torch.tensor([0.0, 1.0, 2.0]))
    assert found.tolist() == [[1], [2]]
    assert vars(found) == {}


def test_marks_of_the_user_stay() -> None:
    compiled = stator.compile(lambda x: (x * 2, x), backend="aot_eager")
    x = torch.randn(4)
    stator.maybe_mark_dynamic(x, 0)
    marks = dict(vars(x))
    assert marks and compiled(x)[1] is x
    assert vars(x) == marks


def test_marks_of_torch_compile_stay() -> None:
    """Its next graph relies on them."""
    def doubled(x: Any) -> Any:
        return x * 2

    stator.compile(doubled, backend="aot_eager", dynamic=True)(torch.randn(3))
    torch._dynamo.reset()
    assert vars(torch.compile(doubled, backend="aot_eager", dynamic=True)(torch.randn(3)))
