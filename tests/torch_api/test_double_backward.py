"""Gradients of gradients through compiled functions: the compiled backward gives way to autograd's own."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import stator

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition")


def inputs(seed: int) -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def penalised(function, model):
    """Two steps with a penalty on the gradient: losses, gradients of weights and inputs, buffers, random state."""
    torch.manual_seed(0)
    seen = []
    for step in range(2):
        model.zero_grad()
        x = inputs(step)
        out = function(x)
        first = out[0] if isinstance(out, tuple) else out
        grad, = torch.autograd.grad(first.sum(), x, create_graph=True)
        loss = ((grad.norm(2, dim=1) - 1) ** 2).mean() + first.pow(2).mean()
        loss.backward()
        seen += [loss.detach(), x.grad, *(each.grad for each in model.parameters()),
                 *(each.clone() for each in model.buffers()), torch.get_rng_state()]
    return seen


def layers(*middle):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.Tanh(), nn.Linear(8, 1))


def plain(model):
    return model


def with_views(model):
    def program(x):
        made = model(x) * x
        return made.view(-1), made.t(), made.sum()
    return program


def in_two_graphs(model):
    def program(x):
        made = torch.tanh(model[0](x))
        stator.graph_break()
        return model[-1](made * made)
    return program


def with_hook(model):
    def program(x):
        made = model[0](x)
        made.register_hook(lambda grad: grad * 2)
        return model[-1](made * made), x, x * 2
    return program


def in_place(model):
    def program(x):
        made = model[0](x).clone()
        made.mul_(2).tanh_()
        return model[-1](made)
    return program


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrap", [plain, with_views, in_two_graphs, with_hook, in_place])
def test_penalty_on_the_gradient(wrap, backend):
    expected = penalised(wrap(model := layers()), model)
    found = penalised(stator.compile(wrap(model := layers()), backend=backend), model)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("middle", [nn.Dropout(0.5), nn.BatchNorm1d(8)], ids=["random", "statistics"])
def test_what_a_second_run_must_not_repeat(middle, backend):
    model = layers(copy.deepcopy(middle))
    expected = penalised(model, model)
    model = layers(copy.deepcopy(middle))
    torch.testing.assert_close(penalised(stator.compile(model, backend=backend), model), expected)


def test_hooks_on_the_inputs_run_as_often_as_eagerly():
    def run(function):
        seen = []
        x = inputs(0)
        y = x * 1
        y.register_hook(lambda grad: seen.append(1) or grad * 2)
        first, = torch.autograd.grad(function(y), x, create_graph=True)
        second, = torch.autograd.grad(first.sum(), x)
        return first, second, len(seen)

    def program(x):
        return (x ** 3).sum()

    torch.testing.assert_close(run(stator.compile(program, backend="aot_eager")), run(program))


def test_an_input_that_was_changed_meanwhile_is_refused():
    compiled = stator.compile(lambda x, w: (x * x * w).sum(), backend="aot_eager")
    x, w = inputs(0), torch.ones(4)
    out = compiled(x, w)
    first, = torch.autograd.grad(out, x, create_graph=True, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], torch.full((3, 4), 2.0))
    out = compiled(x, w)
    w.mul_(2)
    with pytest.raises(RuntimeError):
        first, = torch.autograd.grad(out, x, create_graph=True)
        torch.autograd.grad(first.sum(), x)


def test_an_input_that_was_changed_meanwhile_is_not_read_again():
    """The backward uses values computed before; run again, the graph would see the new numbers."""
    compiled = stator.compile(lambda x, w: x * w.sum(), backend="aot_eager")
    x, w = inputs(0), torch.ones(4)
    out = compiled(x, w)
    w.mul_(2)
    first, = torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.testing.assert_close(first, torch.full((3, 4), 4.0))


def test_inputs_are_let_go_with_what_autograd_has_saved():
    compiled = stator.compile(lambda x: (x + 1).sum(), backend="aot_eager")
    x = inputs(0)
    middle = x * 2
    held = weakref.ref(middle)
    out = compiled(middle)
    del middle
    out.backward()
    gc.collect()
    assert held() is None
