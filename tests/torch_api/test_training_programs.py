"""Small training programs with traps, each run three times beside eager: values, gradients, buffers, random streams."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.torch_api.side_by_side import World, compare

PROGRAMS: list[Callable[[], World]] = []


def program(make: Callable[[], World]) -> Callable[[], World]:
    PROGRAMS.append(make)
    return make


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bad_index(step: int) -> torch.Tensor:
    return torch.tensor([0, 77 if step == 1 else 1])


# ---------------------------------------------------------------------- statistics of a step that fails


@program
def statistics_are_updated_once_where_the_graph_fails() -> World:
    norm = nn.BatchNorm1d(4)

    def step(x: Any, index: Any) -> Any:
        return F.batch_norm(x, norm.running_mean, norm.running_var, training=True)[index]
    return World(step, lambda i: (values(3, 4, seed=i), bad_index(i)), lambda: norm)


@program
def instance_statistics_are_updated_once_where_the_graph_fails() -> World:
    norm = nn.InstanceNorm1d(4, track_running_stats=True)

    def step(x: Any, index: Any) -> Any:
        return norm(x)[index]
    return World(step, lambda i: (values(3, 4, 5, seed=i), bad_index(i)), lambda: norm)


# ---------------------------------------------------------------------- checkpoints: what the backward pass repeats


def layers(*middle: nn.Module, given: int = 4, made: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(given, 8), *middle, nn.Tanh(), nn.Linear(8, made))


def trained(model: nn.Module, step: Any, look: Any = lambda: None) -> World:
    """`step(x)` gives a loss, which is differentiated in the same captured code."""
    def whole_step(x: Any) -> Any:
        loss = step(x)
        loss.backward()
        return loss
    return World(whole_step, lambda i: (values(3, 4, seed=i).requires_grad_(),),
                 lambda: (look(), [each.grad for each in model.parameters()], model))


@program
def checkpoint_of_statistics() -> World:
    model = layers(nn.BatchNorm1d(8))
    return trained(model, lambda x: checkpoint(model, x, use_reentrant=False).sum())


@program
def checkpoint_that_counts() -> World:
    model, calls = layers(), [0]

    def block(x: Any) -> Any:
        calls[0] += 1
        return model(x)
    return trained(model, lambda x: checkpoint(block, x, use_reentrant=False).sum(), lambda: calls)


@program
def checkpoint_without_its_random_state() -> World:
    model = layers(nn.Dropout(0.5))
    return trained(model, lambda x: checkpoint(model, x, use_reentrant=False, preserve_rng_state=False).sum())


@program
def checkpoint_that_draws_from_other_streams() -> World:
    model, stream = layers(), torch.Generator().manual_seed(0)
    return trained(model, lambda x: checkpoint(lambda y: model(y) * torch.rand(1, generator=stream), x,
                                               use_reentrant=False).sum() +
                   checkpoint(lambda y: model(y) * random.random(), x, use_reentrant=False).sum(), stream.get_state)


@program
def checkpoint_that_changes_its_argument() -> World:
    model = layers()

    def block(x: Any) -> Any:
        return model(x.mul_(1.5))
    return trained(model, lambda x: checkpoint(block, x * 1, use_reentrant=False).sum())


# ---------------------------------------------------------------------- what torch's fakes get wrong, or show to hooks


@program
def sparse_gradients() -> World:
    table = nn.Embedding(10, 4, sparse=True)
    optimiser = torch.optim.SparseAdam(table.parameters(), 0.1)

    def step(index: Any) -> Any:
        optimiser.zero_grad()
        loss = table(index).pow(2).sum()
        loss.backward()
        optimiser.step()
        return loss
    return World(step, lambda i: (torch.tensor([1, 2, 3, i]),), lambda: table)


@program
def stored_elements() -> World:
    sparse = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 3.0], (4,))

    def step(x: Any) -> Any:
        merged = sparse.coalesce()
        return x * merged._nnz(), merged.indices(), merged._values().numel(), merged.to_dense()
    return World(step, lambda i: (values(3, 4, seed=i),))


@program
def hooks_on_saved_tensors() -> World:
    model, packed = layers(), []

    def pack(tensor: Any) -> Any:
        packed.append((type(tensor).__name__, tuple(tensor.shape)))
        return tensor

    def step(x: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            return model(x).sum()
    return trained(model, step, lambda: packed)


# ---------------------------------------------------------------------- gradients of what is in between


@program
def kept_gradients() -> World:
    weight = values(4, 4).requires_grad_()

    def step(x: Any) -> Any:
        first = x @ weight
        second = first.tanh()
        first.retain_grad()
        second.retain_grad()
        weight.retain_grad()
        before = first.grad
        (second * first).sum().backward()
        return before, first.grad, second.grad
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: weight)


@program
def two_players() -> World:
    maker, judge = layers(given=2, made=4), layers()
    optimisers = [torch.optim.Adam(each.parameters(), 0.01) for each in (maker, judge)]

    def step(x: Any) -> Any:
        made = maker(torch.randn(3, 2))
        optimisers[1].zero_grad()
        judged = F.softplus(-judge(x)).mean() + F.softplus(judge(made.detach())).mean()
        judged.backward()
        optimisers[1].step()
        optimisers[0].zero_grad()
        fooled = F.softplus(-judge(made)).mean()
        fooled.backward()
        optimisers[0].step()
        return judged, fooled
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (maker, judge))


@program
def gradients_kept_outside() -> World:
    weight = values(4, 4).requires_grad_()

    def arguments(i: int) -> Any:
        made = values(3, 4, seed=i) @ weight
        if i != 1:
            made.retain_grad()
        (made * made).sum().backward()
        return (made,)
    return World(lambda made: 0 if made.grad is None else made.grad * 2, arguments)


@program
def nothing_to_keep() -> World:
    def step(x: Any) -> Any:
        try:
            x.retain_grad()
        except RuntimeError as error:
            return str(error)
    return World(step, lambda i: (values(3, 4, seed=i),))


def test_kept_gradients_are_captured() -> None:
    assert compare(kept_gradients, 3).causes == []


# ---------------------------------------------------------------------- settings that compilers do not follow


@program
def default_dtype_changed_inside() -> World:
    def step(x: Any) -> Any:
        torch.set_default_dtype(torch.float64)
        try:
            made = torch.arange(3) / 2 + torch.ones(3)
        finally:
            torch.set_default_dtype(torch.float32)
        return made, x + 1
    return World(step, lambda i: (values(3, 4, seed=i),))


@program
def inference_beside_training() -> World:
    model = layers()

    def step(x: Any) -> Any:
        with torch.inference_mode():
            judged = model(x).clone()
        return model(x).sum() + judged.mean().item()
    return trained(model, step)


@program
def dropped_generators_beside_a_break() -> World:
    slow, fast = layers(), layers()

    def step(x: Any) -> Any:
        with torch.no_grad():
            for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
                a.data = a.data * 0.9 + b.data * 0.1
        return fast(x).sum() + slow(x).sum()
    return trained(fast, step, lambda: slow)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_equal_to_eager(make: Callable[[], World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    compare(make, 3)
    assert not unraisable


@pytest.mark.parametrize("make", [each for each in PROGRAMS if each is not hooks_on_saved_tensors],
                         ids=lambda make: make.__name__)
def test_equal_to_eager_with_a_compiler(make: Callable[[], World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what a compiler saves for the backward pass: that is its own choice."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    compare(make, 3, "aot_eager", 1e-5)


def test_repeatable_checkpoints_are_captured() -> None:
    def make() -> World:
        model = layers(nn.ReLU(inplace=True), nn.Dropout(0.5))
        return trained(model, lambda x: checkpoint(model, x, use_reentrant=False).sum())
    assert compare(make, 3).causes == []
