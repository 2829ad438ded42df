"""Strides of dimensions with one item: kernels choose them, fakes guess them."""

from __future__ import annotations

import pytest
import torch

from tests.comparison import call, same_as_eager

ODD = (1, 3, 2, 1), (1, 1, 3, 1)
OUTER = (2, 1, 2, 1), (2, 1, 1, 8)


def laid_out(size, stride):
    return torch.empty_strided(size, stride).copy_(torch.arange(float(torch.Size(size).numel())).reshape(size))


@pytest.mark.parametrize("layout", [ODD, OUTER], ids=["odd", "outer"])
@pytest.mark.parametrize("operation", [
    lambda x: x * 2, torch.abs, torch.empty_like, torch.zeros_like, lambda x: x > 0, lambda x: x + x.flip(0),
    lambda x: torch.where(x > 0, x, -x), torch.Tensor.clone, lambda x: (x * 2).transpose(0, 1),
], ids=["mul", "abs", "empty_like", "zeros_like", "gt", "add", "where", "clone", "view"])
def test_strides_are_those_of_the_kernel(operation, layout):
    def program(x):
        result = operation(x)
        return result.stride(), [result.stride(dim) for dim in range(4)], result.is_contiguous()

    same_as_eager(program, call(laid_out(*layout)), call(laid_out(*layout) + 1), fullgraph=False)


def test_known_strides_break_nothing():
    def program(x, y):
        product = x * 2
        views = product.transpose(1, 2), product[:1], y.unsqueeze(0), y[None].transpose(0, 2)
        return [view.stride() for view in views], (y.permute(1, 0, 2) * 2).stride(1)

    calls = [call(torch.randn(1, *first), torch.randn(*second)) for first, second in (((3, 4), (3, 1, 5)), ((6, 2), (2, 1, 7)))]
    same_as_eager(program, *calls, fullgraph=True)
