"""An argument that is a tensor in one call and a number in the next: the number is left open at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


@pytest.mark.parametrize("numbers", [(3, 4, 5), (0.5, 1.5, 2.5)])
def test_a_number_in_the_place_of_a_tensor_is_a_symbol(numbers: tuple[float, ...]) -> None:
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm

    compiled = stator.compile(lambda x, y: x * y, backend=backend)
    x = torch.randn(2)
    for y in (torch.randn(2), numbers[0], torch.randn(2), numbers[1], numbers[2]):
        assert torch.equal(compiled(x, y), x * y)
    assert len(graphs) == 2
