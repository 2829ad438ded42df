"""`backward()` in captured code, beside eager: which leaves get which gradients, and what a second pass does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network, values

CAPTURED, BROKEN = Register(), Register()
BACKENDS = ("eager", "aot_eager")


def with_weight(step: Any, **facts: Any) -> World:
    """One leaf of the program, `step(x, w)`."""
    weight = values(3, 4).requires_grad_()
    return World(lambda x: step(x, weight), lambda i: (values(3, 4, seed=i),), lambda: (weight, weight.grad))


# ---------------------------------------------------------------------- forms of the call


@CAPTURED
def several_losses() -> World:
    def step(x: Any, w: Any) -> Any:
        torch.autograd.backward([(x * w).sum(), w.exp().sum()])
        return w.grad.sum()
    return with_weight(step)


@CAPTURED
def a_gradient_given() -> World:
    def step(x: Any, w: Any) -> Any:
        (x * w).backward(x + 1)
        (w * 2).backward(gradient=torch.ones(3, 4))
    return with_weight(step)


@CAPTURED
def a_gradient_handed_on() -> World:
    a, b = values(3, 4).requires_grad_(), values(3, 4, seed=4).requires_grad_()

    def step(x: Any) -> Any:
        seed = x * 2
        (a + b).backward(seed)
        a.grad.add_(1)
        return seed
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (a.grad, b.grad))


@CAPTURED
def kept_graphs() -> World:
    def step(x: Any, w: Any) -> Any:
        loss = (x * w * w).sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        return loss
    return with_weight(step)


@CAPTURED
def only_some_inputs() -> World:
    model = network()

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward(inputs=[model[0].weight, model[2].bias])
        return loss
    return World(step, batch, look_at(model))


@CAPTURED
def a_leaf_itself() -> World:
    def step(x: Any, w: Any) -> Any:
        w.sum().backward()
        w.backward(x)
    return with_weight(step)


# ---------------------------------------------------------------------- layouts and memory of gradients


@CAPTURED
def gradients_laid_out_as_their_leaves() -> World:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).to(memory_format=torch.channels_last)
    turned = values(4, 3).t().requires_grad_()
    narrow = values(3, 8)[:, ::2].requires_grad_()

    def step(x: Any) -> Any:
        loss = model(x.to(memory_format=torch.channels_last)).mean() + (turned + narrow).sum() + (turned * narrow).sum()
        loss.backward()
        return loss, [each.grad.stride() for each in model.parameters()], turned.grad.stride(), narrow.grad.stride()
    return World(step, lambda i: (values(2, 3, 5, 5, seed=i),), lambda: (look_at(model)(), turned.grad, narrow.grad))


@CAPTURED
def a_gradient_that_others_are_views_of() -> World:
    a, b = values(1, 1, 4).requires_grad_(), values(1, 3, 4, seed=4).requires_grad_()

    def step(x: Any) -> Any:
        a.grad = b.grad = None
        (torch.cat([x, a], 1) + b).pow(2).sum().backward()
        a.grad.mul_(2)
        b.grad.mul_(3)
    return World(step, lambda i: (values(1, 2, 4, seed=i),), lambda: (a.grad, b.grad))


@CAPTURED
def gradients_in_one_memory() -> World:
    a, b = values(2, 4).requires_grad_(), values(3, 4).requires_grad_()

    def step(x: Any) -> Any:
        (torch.cat([a, b]) * x).sum().backward()
        return a.grad, b.grad
    return World(step, lambda i: (values(5, 4, seed=i),), lambda: (a.grad, b.grad))


@CAPTURED
def leaves_made_inside() -> World:
    model = network()

    def step(x: Any, y: Any) -> Any:
        attacked = x.detach().clone().requires_grad_()
        F.mse_loss(model(attacked), y).backward()
        moved = attacked + 0.1 * attacked.grad.sign()
        loss = F.mse_loss(model(moved.detach()), y)
        loss.backward()
        return loss, moved
    return World(step, batch, look_at(model))


@CAPTURED
def leaves_whose_flags_change_between_calls() -> World:
    model = network()

    def arguments(i: int) -> Any:
        model[0].weight.requires_grad_(i % 2 == 0)
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss
    return World(step, arguments, look_at(model))


@CAPTURED
def gradients_that_come_and_go_between_calls() -> World:
    model = network()

    def arguments(i: int) -> Any:
        if i % 2:
            model[0].weight.grad = None
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        F.mse_loss(model(x), y).backward()
    return World(step, arguments, look_at(model))


@CAPTURED
def a_written_leaf() -> World:
    """Steps inside a call: the second backward pass sees the new weights."""
    def step(x: Any, w: Any) -> Any:
        for _ in range(3):
            loss = ((x - w) ** 2).sum()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad.zero_()
        return loss
    return with_weight(step)


@CAPTURED
def autocast_around_the_forward() -> World:
    model = network()

    def step(x: Any, y: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(model(x).float(), y)
        loss.backward()
        return loss
    return World(step, batch, look_at(model))


@CAPTURED
def random_numbers_in_order() -> World:
    model = network(nn.Dropout(0.5))

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss, torch.rand(2)
    return World(step, batch, look_at(model))


@CAPTURED
def a_hook_on_a_leaf() -> World:
    weight, seen = values(3, 4).requires_grad_(), []

    def arguments(i: int) -> Any:
        if i == 2:
            weight.register_hook(lambda grad: seen.append(1) or grad * 2)
        return (values(3, 4, seed=i),)
    return World(lambda x: (x * weight).sum().backward(), arguments, lambda: (weight.grad, seen))


@CAPTURED
def a_hook_behind_the_accumulation() -> World:
    weight, seen = values(3, 4).requires_grad_(), []

    def arguments(i: int) -> Any:
        if i == 2:
            weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.sum().item()))
        return (values(3, 4, seed=i),)
    return World(lambda x: (x * weight).sum().backward(), arguments, lambda: (weight.grad, seen))


@CAPTURED
def double_backward() -> World:
    def step(x: Any, w: Any) -> Any:
        (x * w ** 3).sum().backward(create_graph=True)
        return w.grad.requires_grad
    weight = values(3, 4).requires_grad_()

    def arguments(i: int) -> Any:
        weight.grad = None
        return (values(3, 4, seed=i),)
    return World(lambda x: step(x, weight), arguments, lambda: weight.grad.detach())


@CAPTURED
def double_backward_beside_writes() -> World:
    """A compiled graph that reads what it writes could not run again."""
    count = torch.ones(4)

    def step(x: Any, w: Any) -> Any:
        count.add_(1)
        (x * w ** 3 * count).sum().backward(create_graph=True)
        penalty = w.grad.pow(2).sum()
        w.grad = None
        penalty.backward()
    return with_weight(step)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CAPTURED, ids=lambda make: make.__name__)
def test_captured(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5).causes == []


# ---------------------------------------------------------------------- passes that are left to the engine


@BROKEN
def history_from_outside() -> World:
    weight = values(3, 4).requires_grad_()
    return World(lambda h: (h * weight).sum().backward(), lambda i: (weight * values(3, 4, seed=i),),
                 lambda: weight.grad)


@BROKEN
def history_that_comes_in_through_a_write() -> World:
    weight = values(3, 4).requires_grad_()

    def step(base: Any, view: Any) -> Any:
        made = torch.zeros(4)
        made.add_(view)
        (made * base[0]).sum().backward()
    return World(step, lambda i: (weight, weight[i % 3]), lambda: weight.grad)


@BROKEN
def a_hook_on_the_node_of_a_leaf() -> World:
    weight, seen, kept = values(3, 4).requires_grad_(), [], []

    def arguments(i: int) -> Any:
        if i == 2:
            kept.append(weight.view_as(weight).grad_fn.next_functions[0][0])
            kept[0].register_hook(lambda *grads: seen.append(1))
        return (values(3, 4, seed=i),)
    return World(lambda x: (x * weight).sum().backward(), arguments, lambda: (weight.grad, seen))


@BROKEN
def a_second_pass() -> World:
    def step(x: Any, w: Any) -> Any:
        loss = (x * w * w).sum()
        loss.backward()
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)
        return loss
    return with_weight(step)


@BROKEN
def a_changed_tensor() -> World:
    def step(x: Any, w: Any) -> Any:
        made = (w * 2).exp()
        loss = made.sum()
        made.add_(1)
        try:
            loss.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        return loss
    return with_weight(step)


@BROKEN
def one_gradient_of_two_leaves() -> World:
    a, b = values(3, 4).requires_grad_(), values(3, 4, seed=4).requires_grad_()
    a.grad = b.grad = torch.zeros(3, 4)
    return World(lambda x: (x * a * b).sum().backward(), lambda i: (values(3, 4, seed=i),), lambda: (a.grad, b.grad))


@BROKEN
def sparse_gradients() -> World:
    table = nn.Embedding(10, 4, sparse=True)
    return World(lambda index: table(index).sum().backward(), lambda i: (torch.tensor([1, i]),),
                 lambda: table.weight.grad.to_dense())


@BROKEN
def nothing_to_differentiate() -> World:
    def step(x: Any) -> Any:
        try:
            x.sum().backward()
        except RuntimeError as error:
            return str(error)
    return World(step, lambda i: (values(3, 4, seed=i),))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", BROKEN, ids=lambda make: make.__name__)
def test_left_to_the_engine(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    causes = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5).causes
    assert causes and all("backward pass" in cause for cause in causes)


# ---------------------------------------------------------------------- consumed histories


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
def test_a_consumed_history_raises_as_in_eager(backend: str, dropped: bool) -> None:
    weight = values(3, 4).requires_grad_()

    def step(x: Any) -> Any:
        hidden = (x * weight).exp()
        loss = hidden.sum()
        loss.backward()
        if dropped:
            weight.grad = None
        return loss, hidden, hidden.detach(), weight.sum()

    compiled = stator.compile(step, backend=backend, fullgraph=True)
    wanted, found = step(values(3, 4, seed=1)), compiled(values(3, 4, seed=1))
    for eager, captured in zip(wanted, found, strict=True):
        torch.testing.assert_close(captured, eager)
        assert (captured.requires_grad, captured.is_leaf) == (eager.requires_grad, eager.is_leaf)
    for eager, captured in zip(wanted[:2], found[:2], strict=True):
        with pytest.raises(RuntimeError) as first:
            eager.sum().backward()
        with pytest.raises(RuntimeError) as second:
            captured.sum().backward()
        assert str(first.value) == str(second.value)
    assert torch.autograd.grad(found[3], weight)[0].sum() == 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_history_without_saved_tensors_is_not_consumed(backend: str) -> None:
    weight = values(3, 4).requires_grad_()

    def step(x: Any) -> Any:
        loss = (x + weight).sum()
        loss.backward()
        return loss

    loss = stator.compile(step, backend=backend, fullgraph=True)(values(3, 4, seed=1))
    loss.backward()
    assert weight.grad.sum() == 24
