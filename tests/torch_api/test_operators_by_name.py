"""torch.ops.namespace.operator, asked for the first time inside captured code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import stator


@pytest.fixture
def library() -> Iterator[Any]:
    with torch.library._scoped_library("stator_by_name", "FRAGMENT") as made:
        for name in ("first", "second", "third"):
            made.define(f"{name}(Tensor x) -> Tensor")
            made.impl(name, lambda x: x.clone() * 2, "CPU")
            torch.library.register_fake(f"stator_by_name::{name}", torch.empty_like, lib=made)
        yield made


def test_a_packet_and_an_overload(library: Any) -> None:
    def packet(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.stator_by_name.first(x) + 1

    def overload(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.stator_by_name.second.default(x) + 1

    for function in (packet, overload):
        compiled = stator.compile(function, backend="eager", fullgraph=True)
        for value in (1.0, 2.0):
            assert compiled(torch.full((2,), value)).tolist() == [2 * value + 1] * 2
        assert len(compiled.entries()) == 1


def test_one_that_does_not_exist(library: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        return hasattr(torch.ops.stator_by_name, "missing"), torch.ops.stator_by_name.missing(x)

    with pytest.raises(AttributeError) as caught:
        stator.compile(function, backend="eager")(torch.ones(2))
    with pytest.raises(AttributeError) as expected:
        function(torch.ones(2))
    assert str(caught.value) == str(expected.value)


def test_named_results_made_by_the_program() -> None:
    def function(x: torch.Tensor) -> Any:
        pair = torch.max(x, 0)
        made = torch.return_types.max((pair[0] + 1, pair[1]))
        return made, pytree.tree_map(lambda t: t + 1, pair), made.values

    x = torch.tensor([1.0, 3.0, 2.0])
    found, expected = stator.compile(function, backend="eager", fullgraph=True)(x), function(x)
    assert str(found) == str(expected)
    assert [type(part) for part in found] == [type(part) for part in expected]


def test_a_declared_range_is_kept() -> None:
    x = torch.randn(8, 3)
    stator.mark_dynamic(x, 0, min=2, max=5)
    with pytest.raises(stator.StatorError, match="at most 5, but it is 8"):
        stator.compile(lambda x: x * 2, backend="eager")(x)
