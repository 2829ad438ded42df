"""A graph that writes in place, compiled for inputs on memory of their own, called with inputs that share one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def writes(a: Any, b: Any) -> Any:
    a.add_(1)
    return b * 2


def writes_and_reads(a: Any, b: Any) -> Any:
    b.mul_(3)
    return a + b, a.sum()


@pytest.mark.parametrize("program", [writes, writes_and_reads])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inputs_that_come_to_share_memory(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend)

    def apart() -> Any:
        return torch.arange(4.0), torch.ones(4)

    def same() -> Any:
        base = torch.arange(4.0)
        return base, base.view(4)

    def overlapping() -> Any:
        base = torch.arange(6.0)
        return base[:4], base[2:]

    for make in (apart, same, apart, overlapping, same, overlapping):
        given, expected = make(), make()
        torch.testing.assert_close(compiled(*given), program(*expected))
        torch.testing.assert_close(given, expected)
