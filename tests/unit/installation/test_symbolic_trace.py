"""torch.fx.symbolic_trace of compiled functions under stator.install()."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo
import torch.fx

import stator

X = torch.arange(4.0)


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    original = torch.fx.Tracer.trace
    stator.install()
    yield
    stator.uninstall()
    assert torch.fx.Tracer.trace is original


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return double(x) + 1


@pytest.mark.parametrize("original", [double, Scaled()])
def test_a_compiled_root_is_refused_as_torch_refuses_it(original: torch.nn.Module) -> None:
    compiled = torch.compile(original, backend="eager")
    compiled(X)
    with pytest.raises(RuntimeError, match="Detected that you are using FX to symbolically trace"):
        torch.fx.symbolic_trace(compiled)


@pytest.mark.parametrize("original", [double, Scaled()])
def test_a_compiled_root_is_traced_as_its_original(original: torch.nn.Module) -> None:
    compiled = torch.compile(original, backend="eager")
    with torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        traced = torch.fx.symbolic_trace(compiled)
    plain = torch.fx.symbolic_trace(original)
    assert traced.code == plain.code
    for x in (X, X - 3):
        assert torch.equal(traced(x), original(x)) and torch.equal(compiled(x), original(x))


def test_functions_that_were_not_compiled_are_traced_as_before() -> None:
    assert torch.equal(torch.fx.symbolic_trace(double)(X), double(X))
