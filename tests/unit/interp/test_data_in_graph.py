"""Assignments to Tensor.data of tensors that are used again: nodes of the graph, compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from tests.comparison import GraphCounter


def normalised(w: Any, x: Any) -> Any:
    w.data = w.data / w.data.norm()
    return torch.nn.functional.linear(x, w).sin()


def used_before_and_after(w: Any, x: Any) -> Any:
    y = x @ w
    w.data = w.data * 2
    return y * (x @ w)


def shares_memory(w: Any, x: Any) -> Any:
    w.data = x
    x.add_(1)
    return w * 2


def made_in_the_call(w: Any, x: Any) -> Any:
    t = x.clone()
    view = t[0]
    t.data = w.detach()
    return t + 1, view


def twice(w: Any, x: Any) -> Any:
    w.data = w.data + 1
    y = w.sin()
    w.data = x.clone()
    return y + w.cos()


def under_no_grad(w: Any, x: Any) -> Any:
    with torch.no_grad():
        w.data = w.data.clone()
        w.mul_(2)
    return w * x


def raises_after_it(w: Any, x: Any) -> Any:
    w.data = w.data * 2
    y = w * x
    if x.shape[0] == 4:
        raise ValueError("after the assignment")
    return y


def of_another_dtype(w: Any, x: Any) -> Any:
    w.data = w.data.double()
    return w * x.double()


PROGRAMS = (normalised, used_before_and_after, shares_memory, made_in_the_call, twice, under_no_grad, raises_after_it)


def observed(function: Callable[..., Any], seed: int, counts: bool = True) -> Any:
    torch.manual_seed(seed)
    w, x = torch.nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
    found: list[Any] = []
    memory = w.detach()  # held, so that nobody gets the same address
    for _ in range(2):
        try:
            result = function(w, x)
        except ValueError as error:
            found.append(str(error))
            continue
        parts = result if isinstance(result, tuple) else (result,)
        w.grad = None
        if parts[0].requires_grad:
            parts[0].sum().backward()
        found += [part.detach().clone() for part in parts]
        found += [w.grad, w._version if counts else None, w.is_leaf, w.requires_grad]
    return [*found, w.detach().clone(), x.clone(), w.data_ptr() == memory.data_ptr(), w.data_ptr() == x.data_ptr(), w.dtype]


def require_equal(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_the_assignment_is_captured(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    for seed in (0, 1):
        counts = backend == "eager"  # AOTAutograd counts its copies where results can be differentiated
        require_equal(observed(compiled, seed, counts), observed(program, seed, counts))


def test_a_backend_in_order_takes_another_dtype() -> None:
    counter = GraphCounter("eager")
    compiled = stator.compile(of_another_dtype, backend=counter.backend)
    require_equal(observed(compiled, 0), observed(of_another_dtype, 0))


def test_a_compiler_does_not_see_another_dtype() -> None:
    compiled = stator.compile(of_another_dtype, backend="aot_eager")
    require_equal(observed(compiled, 0), observed(of_another_dtype, 0))
