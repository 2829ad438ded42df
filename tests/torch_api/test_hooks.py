"""Hooks on tensors, new leaves and checkpoints inside captured code."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import stator
from tests.torch_api.beside_eager import BACKENDS, check, values


def on_input(log):
    def program(x):
        x.register_hook(lambda grad: log.append(grad.sum().item()))
        return (x * x).sum()
    return program, values()


def on_parameter(log):
    layer = nn.Linear(4, 4)

    def program(x):
        layer.weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item()))
        handle = layer.bias.register_hook(lambda grad: grad * 2)
        handle.remove()
        handle.remove()
        return layer(x).sum()
    return program, values()


def handle_returned(log):
    def program(x):
        return (x * x).sum(), x.register_hook(lambda grad: grad * 2)
    return program, values()


def on_intermediate(log):
    def program(x, w):
        y = x * 2
        y.register_hook(lambda grad: grad * w.detach())
        y.register_hook(functools.partial(torch.add, 1))
        z = y * y
        z.register_hook(lambda grad: None)
        with z.register_hook(lambda grad: grad * 100):
            pass
        return z.sum()
    return program, values(7, (3, 4), (3, 4))


def dead_leaf(log):
    layer = nn.Linear(4, 4)

    def program(x):
        h = x[:, None]
        h.requires_grad = True
        return layer(h), h.requires_grad, h.is_leaf
    return program, values(wants_grad=False)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [on_input, on_parameter, handle_returned, on_intermediate, dead_leaf])
def test_captured(make, backend):
    check(make, backend)


def noting(log):
    def program(x):
        y = x * 2
        y.register_hook(lambda grad: log.append(tuple(grad.shape)))
        return y.sum()
    return program, values()


def on_changed_input(log):
    def program(x, y):
        y.mul_(x)
        y.register_hook(lambda grad: log.append(grad.sum().item()))
        return y.sum()
    x, y = values(7, (3, 4), (3, 4))
    return program, [x, y.detach()]


def leaf_returned(log):
    def program(x):
        y = x.detach().requires_grad_()
        return (x * y).sum(), y
    return program, values()


def factory_leaf(log):
    def program(x):
        y = torch.ones(4, requires_grad=True)
        return (x * y).sum(), y
    return program, values()


def rootless(log):
    def program(x):
        y = x * 2
        y.requires_grad_()
        return y * 3
    return program, values(wants_grad=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_with_effects_is_registered_itself(backend):
    check(noting, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [leaf_returned, factory_leaf, rootless])
def test_new_leaves_leave_the_graph(make, backend):
    check(make, backend)


def test_a_hook_belongs_to_the_value_it_was_registered_on():
    check(on_changed_input, breaks="SB016", calls=1)


# ---------------------------------------------------------------------- checkpoints


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


CONTEXTS = functools.partial(create_selective_checkpoint_contexts, policy)


def block(x, *, scale=1.0):
    return torch.sigmoid(torch.sigmoid(x @ x.T)) * scale, {"x": x * 2}


def reentrant(log):
    return lambda x: checkpoint(lambda y: torch.sigmoid(y) * y, x * 1, use_reentrant=True), values()


def selective(log):
    def program(x):
        made, more = checkpoint(block, x, use_reentrant=False, context_fn=CONTEXTS, scale=2.0)
        return made.sum() + more["x"].sum()
    return program, values()


def selective_inside(log):
    layer = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())

    def program(x, save=True):
        def choose(ctx, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE
        return checkpoint(layer, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(choose))
    return program, values()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [reentrant, selective, selective_inside])
def test_checkpoint(make, backend):
    check(make, backend)


def test_selective_policy_is_obeyed():
    """Values that must be saved are not computed again in the backward graph; without the policy they are."""
    found = {}
    for name, contexts in (("selective", {"context_fn": CONTEXTS}), ("whole", {})):
        graphs = []

        def keep(gm, inputs, graphs=graphs):
            graphs.append([node.target for node in gm.graph.nodes if node.op == "call_function"])
            return gm

        def program(x, contexts=contexts):
            return checkpoint(block, x, use_reentrant=False, **contexts)[0]

        backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, partition_fn=min_cut_rematerialization_partition)
        x, = values()
        stator.compile(program, backend=backend, fullgraph=True)(x).sum().backward()
        found[name] = graphs[1].count(torch.ops.aten.mm.default)
    assert found["whole"] == found["selective"] + 1


def unsaid(log):
    def program(x):
        return checkpoint(lambda y: torch.sigmoid(y) * log.append(1) if log is None else torch.sigmoid(y), x.detach(),
                          use_reentrant=True)
    return program, values()


def test_a_reentrant_checkpoint_without_gradients_warns():
    with pytest.warns(UserWarning, match="None of the inputs"):
        check(unsaid)


def storing(log):
    class Keeper:
        kept = None

    keeper = Keeper()

    def inner(y):
        keeper.kept = y * 2
        return y * 3

    def program(x):
        out = checkpoint(inner, x * 1, use_reentrant=True)
        return out, keeper.kept.requires_grad
    return program, values()


def nesting(log):
    def program(x):
        made = checkpoint(lambda y: {"a": y.sin(), "b": (y * 3, 3)}, x * 1, use_reentrant=True)
        return made["a"].sum() + made["b"][0].sum(), made["a"].requires_grad
    return program, values()


@pytest.mark.parametrize("make", [storing, nesting])
def test_a_reentrant_checkpoint_sees_tensors_and_tuples_alone(make):
    check(make, breaks="SB016")


def test_whether_the_graph_is_kept_is_asked_of_the_pass_that_runs() -> None:
    def scaled(grad: torch.Tensor) -> torch.Tensor:
        return grad * 2 if torch._C._autograd._get_current_graph_task_keep_graph() else grad * 3

    x = torch.ones(2, requires_grad=True)
    x.register_hook(stator.compile(scaled, backend="eager", fullgraph=True))
    for keeps in ((True, False), (False,)):
        y = (x * 5).sum()
        for keep in keeps:
            x.grad = None
            y.backward(retain_graph=keep)
            assert x.grad.tolist() == ([10.0, 10.0] if keep else [15.0, 15.0])


def test_a_leaf_that_is_frozen_after_a_hook_was_put_on_it() -> None:
    def step(p: Any, x: Any) -> Any:
        p.register_hook(lambda grad: grad * 2)
        p.requires_grad = False
        return x * 2

    seen = []
    for function in (step, stator.compile(step, backend="eager")):
        for _ in range(2):
            p = torch.ones(3, requires_grad=True)
            function(p, torch.ones(3))
            assert not p.requires_grad
            p.requires_grad = True
            p.sum().backward()
            seen.append(p.grad)
    assert all(torch.equal(grad, seen[0]) for grad in seen), seen


@pytest.mark.parametrize("program", [lambda x: (x.grad is None, x * 2), lambda x: ((x * 2).grad is None, x * 3)])
def test_the_gradient_of_what_is_no_leaf_warns(program: Any) -> None:
    told = []
    for function in (program, stator.compile(program, backend="eager")):
        for _ in range(2):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                function(torch.ones(3, requires_grad=True) * 2)
            told.append([str(each.message) for each in seen])
    assert len(told[0]) == 1 and all(each == told[0] for each in told), told
