"""Strides of tensors without elements, which a program can ask for: those of the real tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator

OPERATIONS: dict[str, Any] = {
    "add": lambda t: t + 1, "compare": lambda t: t > 0, "zeros_like": torch.zeros_like, "flip": lambda t: t.flip(0),
    "sort": lambda t: t.sort(-1)[0], "where": lambda t: torch.where(t > 0, t, 0.0), "sum": lambda t: t.sum(0, keepdim=True),
    "clone": torch.clone, "view": lambda t: t.view(t.shape), "unsqueeze": lambda t: t.unsqueeze(0),
    "index": lambda t: t[torch.tensor([], dtype=torch.long)], "divide": lambda t: 1 / t,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_strides_are_the_real_ones(name: str, dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    operation = OPERATIONS[name]

    def asked(x: torch.Tensor) -> Any:
        y = operation(x.transpose(0, -1))
        return y, y.stride(), y.stride(-1), y.is_contiguous(), y.is_contiguous(memory_format=torch.contiguous_format)

    compiled = stator.compile(asked, backend="eager", dynamic=dynamic)
    for shape in ((0, 3), (3, 0), (2, 0, 4), (1, 0, 5), (2, 3)):
        for x in (torch.zeros(shape), torch.zeros(shape).transpose(0, -1)):
            found, expected = compiled(x), asked(x)
            assert found[1:] == expected[1:] and found[0].stride() == expected[0].stride(), shape


def test_sizes_of_empty_ones_are_captured() -> None:
    def sizes(x: torch.Tensor) -> Any:
        return (x.T + 1).shape, x.stride()

    assert stator.compile(sizes, backend="eager", fullgraph=True)(torch.zeros(0, 3)) == (torch.Size([3, 0]), (3, 1))
