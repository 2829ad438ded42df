"""Views and leaves made under no_grad(), number types of numpy as arguments, record_function as a decorator: as in eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.comparison import Checks, Programs, call, same_as_eager

programs, with_numpy = Programs(), Programs()
CHECKS = Checks(tolerance=1e-5, strides="none")


def values(seed: int, rows: int = 3, grad: bool = False) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


@programs
def views(x: Any, k: Any) -> Any:
    with torch.no_grad():
        v, w = x[1:], x.view(-1)
        return v, w * 2, v.requires_grad, w.is_leaf, v * 3


@programs
def flags_of_views(x: Any, k: Any) -> Any:
    with torch.no_grad():
        made = [x[1:], x.t(), x.unbind(0)[0], x.t() * 2, x.detach(), x[1:].reshape(-1), x.reshape(x.shape), x.data]
        return [each.requires_grad for each in made], (x.t() * 2).sum(), x * k


@programs
def views_of_a_result(x: Any, k: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        v = y[1:]
    return v.requires_grad, v.is_leaf, y * k, (v * 2).requires_grad


@programs
def leaf_inside(x: Any, k: Any) -> Any:
    with torch.no_grad():
        z = torch.zeros_like(x).requires_grad_()
        w = (z + x) * k
        return w, z.requires_grad, w.requires_grad, z[1:].requires_grad


@programs
def leaf_that_leaves(x: Any, k: Any) -> Any:
    with torch.no_grad():
        z = torch.zeros_like(x).requires_grad_()
        a = z * 2
    return z, a, z * 3, z * 3 + x


@programs
def gradient_of_a_leaf(x: Any, k: Any) -> Any:
    with torch.no_grad():
        with torch.enable_grad():
            z = torch.zeros_like(k).requires_grad_()
            (grad,) = torch.autograd.grad(((z + k) * k).sum(), z)
        return grad + x


@programs
def decorated(x: Any, k: Any) -> Any:
    @torch.profiler.record_function("scaled")
    def scaled(y: Any) -> Any:
        return y * 2
    return scaled(x) + k, scaled.__name__


@pytest.mark.parametrize("backend, grad", [("eager", False), ("eager", True), ("aot_eager", True)])
@pytest.mark.parametrize("name", programs)
def test_as_in_eager(name: str, backend: str, grad: bool) -> None:
    calls = [call(values(seed, rows, grad), values(seed + 5, rows)) for seed, rows in ((1, 3), (2, 3), (3, 5))]
    same_as_eager(programs[name], *calls, backend=backend, checks=CHECKS)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, double: Any) -> Any:
        ctx.double = double
        return x * 2 if double else x * 3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 if ctx.double else grad, None


@with_numpy
def function_of_a_numpy_bool(x: Any, flag: Any, kind: Any) -> Any:
    return Scaled.apply(x, flag) * 3


@with_numpy
def number_type(x: Any, flag: Any, kind: Any) -> Any:
    return x * 2 if kind == np.float32 else x * 3, float(np.finfo(kind).max) > 1e39, {kind: 1}[kind]


@with_numpy
def array_of_a_type(x: Any, flag: Any, kind: Any) -> Any:
    return x + torch.from_numpy(np.ones(4).astype(kind)), np.zeros(2, kind)


@pytest.mark.parametrize("name", with_numpy)
def test_numpy_arguments(name: str) -> None:
    single, double = np.dtype("float32"), np.dtype("float64")
    calls = [lambda x=x, given=given: ((values(x, grad=True), *given), {}) for x, given in enumerate(
        [(np.bool_(True), single), (np.bool_(False), single), (np.bool_(True), double)])]
    same_as_eager(with_numpy[name], *calls, checks=CHECKS)
