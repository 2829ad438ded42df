"""torch.vmap inside captured code: one node that maps a graph of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator

WEIGHT = torch.randn(3, 3, requires_grad=True)


def simple(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row.sin().sum())(x)


def closure(x: torch.Tensor) -> torch.Tensor:
    shift = x.mean()
    return torch.vmap(lambda row: WEIGHT @ row + shift)(x)


def dims(x: torch.Tensor) -> Any:
    return torch.vmap(lambda a, b: {"sum": a + b, "scaled": a * 2}, in_dims=(1, None), out_dims=1)(x, x[0, 0])


def nested(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: torch.vmap(lambda item: item * row.sum())(row))(x)


def conditional(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row * 2 if row.shape[0] == 3 else row)(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [simple, closure, dims, nested, conditional])
def test_same_as_eager(fn: Any, backend: str) -> None:
    run = stator.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 3, requires_grad=True)
        expected, found = fn(x), run(x)
        pairs = [(expected, found)] if isinstance(expected, torch.Tensor) else \
            [(expected[key], found[key]) for key in expected]
        for one, other in pairs:
            torch.testing.assert_close(other, one)
            gradient, = torch.autograd.grad(one.sum(), x, retain_graph=True)
            torch.testing.assert_close(torch.autograd.grad(other.sum(), x, retain_graph=True)[0], gradient)


def test_an_error_inside_is_the_programs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row, in_dims=5)(x)

    with pytest.raises(ValueError, match="in_dim=5"):
        stator.compile(fn, backend="eager", fullgraph=True)(torch.ones(2, 3))


@pytest.mark.parametrize("body", [
    lambda a, k: a * k, lambda a, k: k - a, lambda a, k: a / k, lambda a, k: torch.full((2,), k) + a,
    lambda a, k: a.expand(k), lambda a, k: a ** k,
], ids=["product", "difference", "quotient", "fill", "size", "power"])
def test_a_number_of_the_program_that_changes(body: Any) -> None:
    def program(x, k):
        return torch.vmap(lambda a: body(a, k))(x) + k, torch.func.grad(lambda z: body(z, k).sum())(x[0])

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for k in (2, 3, 4, 3):
        for got, expected in zip(compiled(torch.arange(1.0, 4.0), k), program(torch.arange(1.0, 4.0), k), strict=True):
            assert torch.equal(got, expected)


@pytest.mark.parametrize("transform", [
    lambda x, n: torch.vmap(torch.sum, n)(x), lambda x, n: torch.vmap(lambda a: a.sum(0), out_dims=n)(x),
    lambda x, n: torch.vmap(torch.sin, chunk_size=n + 1)(x),
    lambda x, n: torch.func.grad(lambda p, q, r: (p * q.sin() * r.cos()).sum(), argnums=n)(x, x, x),
    lambda x, n: torch.func.jacfwd(lambda p, q, r: (p * q.sin() * r).sum(), argnums=n)(*(x[0, 0],) * 3),
], ids=["in_dims", "out_dims", "chunks", "grad", "jvp"])
def test_which_argument_and_which_dimension_are_no_symbols(transform: Any) -> None:
    compiled = stator.compile(transform, backend="eager", fullgraph=True, dynamic=True, options={"strict": True})
    x = torch.arange(81.0).reshape(3, 3, 3, 3)
    for n in (1, 0, 2):
        assert torch.equal(compiled(x, n), transform(x, n))


def test_a_transform_that_refuses_open_sizes_breaks() -> None:
    def program(x):
        return torch.func.jacfwd(lambda p: (p * p.sin()).sum())(x.transpose(0, 1))

    compiled = stator.compile(program, backend="eager", dynamic=True, options={"strict": True})
    for size in (2, 3):
        x = torch.arange(2.0 * size).reshape(size, 2)
        assert torch.equal(compiled(x), program(x))
