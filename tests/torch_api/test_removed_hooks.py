"""A hook on a tensor of the graph that a pass has called before it is removed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.hooks import RemovableHandle

import stator
from tests.comparison import call, same_as_eager

CALLS = call(torch.arange(1.0, 5.0)), call(torch.arange(2.0, 8.0))


def after_backward(x):
    leaf = x.clone().requires_grad_()
    handle = leaf.register_hook(lambda grad: grad * 2)
    (leaf * leaf).sum().backward()
    handle.remove()
    return leaf.grad


def between_two_passes(x):
    leaf = x.clone().requires_grad_()
    squares = leaf * leaf
    with squares.register_hook(lambda grad: grad * 3):
        first, = torch.autograd.grad(squares.sum(), leaf, retain_graph=True)
    second, = torch.autograd.grad(squares.sum(), leaf)
    return first, second


def one_of_two(x):
    leaf = x.clone().requires_grad_()
    squares = leaf * leaf
    kept = squares.register_hook(lambda grad: grad + 1)
    gone = squares.register_hook(lambda grad: grad * 3)
    first, = torch.autograd.grad(squares.sum(), leaf, retain_graph=True)
    gone.remove()
    gone.remove()
    (squares.sum() * 5).backward()
    kept.remove()
    return first, leaf.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [after_backward, between_two_passes, one_of_two], ids=lambda each: each.__name__)
def test_a_removed_hook_counts_for_the_passes_before(program, backend):
    same_as_eager(program, *CALLS, backend=backend)


def test_a_removed_hook_is_captured_whole():
    same_as_eager(after_backward, *CALLS, fullgraph=True, graphs=1)


def test_a_handle_that_was_removed_is_returned():
    def program(x):
        handle = x.register_hook(lambda grad: grad * 2)
        own = x * 2
        other = own.register_hook(lambda grad: grad * 3)
        handle.remove()
        other.remove()
        return own, handle, handle, other

    x = torch.ones(3, requires_grad=True)
    result, first, again, other = stator.compile(program, backend="eager", fullgraph=True)(x)
    assert type(first) is RemovableHandle and first is again and type(other) is RemovableHandle
    first.remove()
    other.remove()
    result.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_handle_of_a_hook_in_the_graph_is_returned(backend):
    def program(x):
        own = x * 2
        return own.sum(), own.register_hook(lambda grad: grad * 3)

    compiled = stator.compile(program, backend=backend)
    for removed, gradient in (False, 6.0), (True, 2.0):
        x = torch.ones(3, requires_grad=True)
        loss, handle = compiled(x)
        assert type(handle) is RemovableHandle
        if removed:
            handle.remove()
        loss.backward()
        assert x.grad.tolist() == [gradient] * 3


def test_a_handle_outlives_a_break():
    def program(x):
        leaf = x.clone().requires_grad_()
        squares = leaf * leaf
        handle = squares.register_hook(lambda grad: grad * 3)
        stator.graph_break()
        squares.sum().backward(retain_graph=True)
        handle.remove()
        squares.sum().backward()
        return leaf.grad

    same_as_eager(program, *CALLS, fullgraph=False)
