"""Tensors made of numbers that change: one capture for all numbers, in every spelling of the constructor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from counting import run

T = torch.Tensor


def old_constructors(x: T, n: int, f: float) -> Any:
    return (torch.Tensor([n, f]), torch.Tensor([[n, 1], [2, n]]), torch.LongTensor([n, f]), torch.DoubleTensor((f,)),
            torch.BoolTensor([n, 0]), torch.HalfTensor([n]), torch.Tensor(n).shape)


def new_constructors(x: T, n: int, f: float) -> Any:
    return (torch.tensor([n, f]), torch.tensor(n), torch.tensor([[n, 1], [2, n]]), torch.tensor((f, n), dtype=torch.int32),
            torch.as_tensor([n, n]))


def like_another(x: T, n: int, f: float) -> Any:
    whole = x.int()
    return (x.new_tensor([n, 1]), whole.new_tensor([f, n]), whole.new_tensor(n), x.new_tensor([n], dtype=torch.float64),
            x.new([n, f]), whole.new([n]), x.new(n).shape)


def with_a_gradient(x: T, n: int, f: float) -> Any:
    leaf = torch.tensor([f], requires_grad=True)
    return x * leaf, leaf.requires_grad


CALLS = [(torch.ones(2), n, n + 0.75) for n in (2, 3, 5, 2**24 + 1, 7)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", [old_constructors, new_constructors, like_another, with_a_gradient],
                         ids=lambda function: function.__name__)
def test_numbers(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    calls = CALLS if function is not old_constructors and function is not like_another else [*CALLS[:3], CALLS[4]]
    assert run(function, calls, backend=backend)[0] == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes(backend: str) -> None:
    def function(x: T) -> Any:
        h, w = x.shape
        return torch.Tensor([w, h]), torch.tensor(x.shape), torch.LongTensor([h]), x.new_tensor(x.shape), x.new([h]), \
            torch.Tensor(x.shape).shape

    assert run(function, [(torch.ones(n, n + 2),) for n in (2, 3, 5, 8)], backend=backend)[0] == 2
