"""What was found out about an operation serves the next one like it, and no other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import stator


def attention(x: torch.Tensor) -> tuple[int, ...]:
    return F.scaled_dot_product_attention(x, x, x).stride()


def test_kernels_that_lay_their_results_out_differently() -> None:
    x, found = torch.randn(2, 8, 3, 16).transpose(1, 2), set()
    for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(kernel):
            made = stator.compile(attention, backend="eager")(x)
            assert made == attention(x)
            found.add(made)
    assert len(found) == 2, "or there is nothing to tell apart"


def reshaped(x: torch.Tensor) -> tuple[tuple[int, ...], ...]:
    y = x * 2
    before = y.t().stride()
    y.unsqueeze_(0)
    z = y * 2
    y.resize_(2, 2)
    return before, tuple(z.shape), tuple((y * 2).shape)


def written(x: torch.Tensor) -> tuple[bool, bool, bool]:
    y = torch.zeros(3)
    first = (y + 1).requires_grad
    y.add_(x)
    second = (y + 1).requires_grad
    y.detach_()
    return first, second, (y + 1).requires_grad


@pytest.mark.parametrize("program", [reshaped, written])
def test_a_tensor_that_was_changed_in_place_is_another(program: object) -> None:
    size = (2, 3) if program is reshaped else (3,)
    x = torch.ones(*size, requires_grad=program is written)
    assert stator.compile(program, backend="eager")(x) == program(x)  # type: ignore[operator]
