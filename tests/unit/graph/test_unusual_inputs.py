"""Inputs whose fakes need care: numbers of another trace, batches of vmap, old gradients, moved strides."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch._vmap_internals import _vmap
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import stator
from stator import events
from tests.comparison import call, same_as_eager


def test_a_number_of_another_trace():
    number = ShapeEnv().create_unbacked_symint()

    def handed_on(number, x):
        return x + 1, number

    def computed(number, x):
        return x + 1, number * 2

    x = torch.ones(2)
    compiled = stator.compile(handed_on, backend="eager")
    for _ in range(2):
        result, same = compiled(number, x)
        assert same is number and torch.equal(result, x + 1)
    with events.record() as log:
        result, double = stator.compile(computed, backend="eager")(number, x)
    assert not [each for each in log if isinstance(each, events.InternalFailure)]
    assert torch.equal(result, x + 1) and str(double) == f"2*{number}"


def test_a_batched_tensor_behind_a_break():
    def program(x):
        def of_row(row):
            row = row * 2
            stator.graph_break()
            return row.sin()
        return _vmap(of_row)(x)

    x = torch.arange(6.0).reshape(2, 3)
    with events.record() as log:
        assert torch.equal(stator.compile(program, backend="eager")(x), program(x))
    assert not [each for each in log if isinstance(each, events.InternalFailure)]


def test_a_size_that_varies_is_given_to_an_operation_on_views():
    def program(x, n):
        x.resize_(n)
        return x.shape, x

    same_as_eager(program, *(call(torch.arange(9.0), n) for n in (3, 5, 7)))


def test_a_gradient_of_another_dtype():
    def program(weight, data):
        return weight * 2 + data, weight.grad

    compiled = stator.compile(program, backend="eager")
    for start in 1.0, 2.0:
        weight = torch.full((3,), start, requires_grad=True)
        (weight * 2).sum().backward()
        weight.data = weight.data.double()
        with events.record() as log:
            result, grad = compiled(weight, weight.data)
        assert grad is weight.grad and torch.equal(result, weight * 2 + weight.data)
        assert not [each for each in log if isinstance(each, events.InternalFailure)]


@pytest.mark.parametrize("dynamic", [None, True])
def test_strides_that_move_in_every_call(dynamic):
    def program(x):
        y = x.to(torch.float64, memory_format=torch.preserve_format)
        return y, y.stride(), (x * 2).stride(), torch.empty_like(x).stride()

    compiled = stator.compile(program, backend="eager", dynamic=dynamic)
    x = torch.randn(3, 4, 5, 2)
    for order in itertools.islice(itertools.permutations(range(4)), 1, 24, 2):
        permuted = x.permute(order)
        expected, result = program(permuted), compiled(permuted)
        assert result[1:] == expected[1:]
        assert result[0].stride() == expected[0].stride() and torch.equal(result[0], expected[0])
