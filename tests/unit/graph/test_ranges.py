"""Comparisons of random numbers that are decided by the range they are drawn from."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.graph.values.known_values import decided
from stator.shapes.environment import UNKNOWN


def skipping(x, p):
    for i in range(3):
        if torch.rand([]) < p:
            continue
        x = x * 2 + i
    return x if not p > torch.rand(()) else -x


def by_item(x, p):
    return x + 1 if torch.rand(1).item() < p else x * 2


def shifted(x, p):
    drawn = torch.rand([])
    drawn -= 1
    return x + 1 if drawn < p else x * 2


@pytest.mark.parametrize("program", [skipping, by_item])
@pytest.mark.parametrize("p", [0.0, -0.5, 1.5, 2])
def test_outside_the_range_is_no_branch(program, p):
    x = torch.ones(3)
    torch.manual_seed(1)
    expected, then = program(x, p), torch.rand(())
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.manual_seed(1)
        assert torch.equal(compiled(x, p), expected)
        assert torch.equal(torch.rand(()), then)  # the draws were made


@pytest.mark.parametrize("program,p", [(skipping, 0.5), (by_item, 0.5), (shifted, 0.0)])
def test_inside_the_range_is_one(program, p):
    with pytest.raises(stator.Unsupported, match="SB00[23]"):
        stator.compile(program, backend="eager", fullgraph=True, options={"capture_control_flow": False})(torch.ones(3), p)
    compiled = stator.compile(program, backend="eager")
    for seed in range(4):
        torch.manual_seed(seed)
        expected = program(torch.ones(3), p)
        torch.manual_seed(seed)
        assert torch.equal(compiled(torch.ones(3), p), expected)


def test_ends_of_the_range():
    assert decided("lt", 0.0) is False and decided("ge", 0.0) is True and decided("le", 1.0) is True
    assert decided("gt", 1.0) is False and decided("lt", -1) is False and decided("gt", -1) is True
    assert {decided(c, n) for c, n in (("lt", 1.0), ("le", 0.0), ("gt", 0.0), ("ge", 1.0), ("lt", 0.5))} == {UNKNOWN}


def test_a_convolution_of_an_unknown_number_of_images():
    conv = torch.nn.Conv2d(3, 5, 4, stride=4)

    def program(x, wanted):
        return conv(x[wanted.nonzero()[:, 0]])

    args = torch.randn(4, 3, 8, 8), torch.tensor([1, 0, 1, 1])
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(*args), program(*args))
