"""Kernels in Python of operators that `torch.library.impl` and `Library.impl` register: each runs once a call, in order."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import stator

LOG: list[Any] = []
COUNT = 0
LIBRARY = torch.library.Library("stator_kernels", "DEF")
ADDITION = "(Tensor x) -> Tensor"


def log_and_add(x: torch.Tensor) -> torch.Tensor:
    LOG.append(1)
    return x + 1


def count_and_add(x: torch.Tensor) -> torch.Tensor:
    global COUNT
    COUNT += 1
    return x + 1


class Kernel:
    def __init__(self) -> None:
        self.log: list[int] = LOG

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(len(self.log))
        return x + 1

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self(x)


def log_into(log: list[Any], x: torch.Tensor) -> torch.Tensor:
    log.append(2)
    return x + 1


def several(x: torch.Tensor, n: int, name: str = "", sizes: Any = None) -> torch.Tensor:
    LOG.append(n)
    return x + n


def around(x: torch.Tensor) -> torch.Tensor:
    LOG.append("autograd")
    with torch._C._AutoDispatchBelowAutograd():
        result: torch.Tensor = torch.ops.stator_kernels.below(x)
    return result


def operator(name: str, kernel: Any, key: str, described: bool = True, schema: str = ADDITION) -> Any:
    LIBRARY.define(name + schema)
    LIBRARY.impl(name, kernel, key)
    if described:
        torch.library.register_fake(f"stator_kernels::{name}", lambda x, *_: torch.empty_like(x), lib=LIBRARY)
    return getattr(torch.ops.stator_kernels, name)


OPERATORS = {
    "function": operator("function", log_and_add, "CPU"),
    "any device": operator("explicit", count_and_add, "CompositeExplicitAutograd"),
    "runs on fakes": operator("undescribed", log_and_add, "CompositeExplicitAutograd", False),
    "in place of others": operator("implicit", log_and_add, "CompositeImplicitAutograd", False),
    "object": operator("object", Kernel(), "CPU"),
    "method": operator("method", Kernel().method, "CPU"),
    "partial": operator("partial", functools.partial(log_into, LOG), "CPU"),
    "below autograd": operator("below", log_and_add, "CPU"),
}
WITH_NUMBERS = operator("several", several, "CPU", schema="(Tensor x, int n, str name='', int[]? sizes=None) -> Tensor")
OPERATORS["numbers"] = lambda x: WITH_NUMBERS(x, 3)
torch.library.impl(LIBRARY, "below", "AutogradCPU")(around)
torch.library.define("stator_kernels::decorated", ADDITION)
torch.library.impl("stator_kernels::decorated", "cpu")(lambda x: (LOG.append(1), x + 1)[1])
torch.library.register_fake("stator_kernels::decorated")(lambda x: torch.empty_like(x))
OPERATORS["decorated"] = torch.ops.stator_kernels.decorated


def read_behind(call: Any, x: torch.Tensor) -> Any:
    y = call(x)
    return y, len(LOG), COUNT


def read_before(call: Any, x: torch.Tensor) -> Any:
    before = len(LOG), COUNT
    return call(x), before


def write_between(call: Any, x: torch.Tensor) -> Any:
    y = call(call(x))
    LOG.append("between")
    return call(y)


def only_call(call: Any, x: torch.Tensor) -> Any:
    return call(x * 2) * 3


def outcomes(function: Any, wants_grad: bool = False) -> list[Any]:
    global COUNT
    LOG.clear()
    COUNT = 0
    found: list[Any] = []
    for _ in range(3):
        x = torch.zeros(2, requires_grad=wants_grad)
        result = function(x)
        if wants_grad:
            result.sum().backward()
        found.append((repr(result), x.grad, LOG[:], COUNT))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [read_behind, read_before, write_between, only_call])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_runs_once(name: str, program: Any, backend: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        return program(OPERATORS[name], x)

    expected = outcomes(fn)
    assert outcomes(stator.compile(fn, backend=backend)) == expected
    if program is only_call or name == "in place of others":  # whose body is captured
        assert outcomes(stator.compile(fn, backend=backend, fullgraph=True)) == expected
    elif program is not write_between:
        with pytest.raises(stator.Unsupported, match="SB006"):
            stator.compile(fn, backend=backend, fullgraph=True)(torch.zeros(2))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_kernel_made_of_operators_has_their_gradient(backend: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        return OPERATORS["in place of others"](x.exp()).sin()

    (first, *_), (second, *_) = outcomes(fn, True), outcomes(stator.compile(fn, backend=backend, fullgraph=True), True)
    assert first[0].partition("grad_fn")[0] == second[0].partition("grad_fn")[0] and first[2:] == second[2:]
    assert torch.equal(first[1], second[1])
