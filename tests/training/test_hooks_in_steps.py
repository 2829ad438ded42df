"""Steps whose backward pass calls hooks, keeps gradients or is differentiated again, beside eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import batch, look_at, network, values

CAPTURED, BROKEN = Register(), Register()
BACKENDS = ("eager", "aot_eager")


def with_network(prepare: Any, arguments: Any = batch, step: Any = None, **facts: Any) -> World:
    """A network under SGD; `prepare(model, seen)` registers hooks, and `seen` is compared."""
    model, seen = network(), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handles = prepare(model, seen)

    def plain(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss.detach()
    given = (lambda i: arguments(i, model, seen, handles)) if arguments is not batch else batch
    return World(plain if step is None else lambda x, y: step(model, optimiser, x, y), given,
                 lambda: (look_at(model, optimiser)(), list(seen)))


# ---------------------------------------------------------------------- hooks on leaves


@CAPTURED
def hooks_that_change_gradients() -> World:
    def prepare(model: Any, seen: Any) -> None:
        for each in model.parameters():
            each.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
            each.register_hook(lambda grad: grad * 0.5)
    return with_network(prepare)


@CAPTURED
def hooks_in_the_order_of_the_engine() -> World:
    def prepare(model: Any, seen: Any) -> None:
        for name, each in model.named_parameters():
            each.register_hook(lambda grad, name=name: seen.append(("before", name)))
            each.register_post_accumulate_grad_hook(lambda leaf, name=name: seen.append(("after", name)))
    return with_network(prepare)


@CAPTURED
def hooks_that_keep_gradients() -> World:
    def prepare(model: Any, seen: Any) -> None:
        for each in model.parameters():
            each.register_hook(lambda grad: seen.append(grad))
            each.register_hook(lambda grad: seen.append(grad * 2) or seen[-1])
    return with_network(prepare)


@CAPTURED
def hooks_that_come_and_go() -> World:
    def prepare(model: Any, seen: Any) -> Any:
        return []

    def arguments(i: int, model: Any, seen: Any, handles: Any) -> Any:
        if i == 1:
            handles.append(model[0].weight.register_hook(lambda grad: grad * 2))
        if i == 2:
            handles.append(model[0].weight.register_hook(lambda grad: seen.append(grad.sum())))
        if i == 3:
            handles.pop(0).remove()
        if i == 4:
            model[0].weight.requires_grad_(False)
        if i == 5:
            handles.pop().remove()
        return batch(i)
    return with_network(prepare, arguments)


@CAPTURED
def hooks_of_the_step_itself() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        handle = model[0].weight.register_hook(lambda grad: grad + 0.01)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        handle.remove()
        optimiser.step()
        return loss.detach()
    return with_network(lambda model, seen: None, step=step)


@CAPTURED
def an_optimiser_in_the_backward_pass() -> World:
    model, seen = network(), []
    optimisers = {each: torch.optim.Adam([each], lr=0.01) for each in model.parameters()}

    def update(leaf: Any) -> None:
        optimisers[leaf].step()
        optimisers[leaf].zero_grad()
        seen.append(tuple(leaf.shape))
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(update)

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss.detach(), [each.grad is None for each in model.parameters()]
    return World(step, batch, lambda: (look_at(model, *optimisers.values())(), list(seen)))


@CAPTURED
def hooks_on_tied_leaves_over_two_passes() -> World:
    def prepare(model: Any, seen: Any) -> None:
        model[2].bias.register_hook(lambda grad: seen.append(grad.sum().item()) or grad * 3)

    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad(set_to_none=False)
        for part, aim in zip(x.chunk(2), y.chunk(2), strict=True):
            hidden = model[2](model[1](model[0](part)))
            (F.mse_loss(hidden + model[2].bias, aim) / 2).backward()
        optimiser.step()
    return with_network(prepare, step=step)


@CAPTURED
def hooks_that_read_other_gradients() -> World:
    def prepare(model: Any, seen: Any) -> None:
        model[0].bias.register_post_accumulate_grad_hook(
            lambda leaf: seen.append([None if each.grad is None else each.grad.sum() for each in model.parameters()]))
    return with_network(prepare)


@CAPTURED
def a_hook_of_an_object() -> World:
    class Clipper:
        def __init__(self, limit: float) -> None:
            self.limit, self.calls = limit, 0

        def __call__(self, grad: Any) -> Any:
            self.calls += 1
            return grad.clamp(-self.limit, self.limit)

        def bound(self, grad: Any) -> Any:
            self.calls += 10
            return grad * self.limit
    clipper = Clipper(0.1)
    model = network()
    model[0].weight.register_hook(clipper)
    model[2].weight.register_hook(clipper.bound)

    def arguments(i: int) -> Any:
        clipper.limit = 0.1 if i < 2 else 0.2
        return batch(i)

    def step(x: Any, y: Any) -> Any:
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
    return World(step, arguments, lambda: (look_at(model)(), clipper.calls))


@CAPTURED
def inputs_with_hooks() -> World:
    def prepare(model: Any, seen: Any) -> None:
        for name, each in model.named_parameters():
            each.register_hook(lambda grad, name=name: seen.append(name))

    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        F.mse_loss(model(x), y).backward(inputs=[model[0].weight, model[2].bias])
    return with_network(prepare, step=step)


@BROKEN
def a_hook_that_raises() -> World:
    def prepare(model: Any, seen: Any) -> None:
        def hook(grad: Any) -> None:
            seen.append(1)
            if len(seen) == 2:
                raise ValueError("stop")
        model[0].bias.register_hook(hook)

    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        try:
            F.mse_loss(model(x), y).backward()
        except ValueError as error:
            return str(error)
    return with_network(prepare, step=step)


@BROKEN
def a_hook_that_writes_to_the_gradient() -> World:
    a, b = values(3, 4).requires_grad_(), values(3, 4, seed=4).requires_grad_()
    a.register_hook(lambda grad: grad.mul_(2) and None)

    def step(x: Any) -> Any:
        a.grad = b.grad = None
        ((a + b.exp()) + b).backward(x)
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (a.grad, b.grad))


@BROKEN
def a_hook_that_writes_to_what_is_saved() -> World:
    a, b = values(3, 4).requires_grad_(), values(3, 4, seed=4).requires_grad_()

    def update(leaf: Any) -> None:
        with torch.no_grad():
            leaf.sub_(0.1)
    b.register_post_accumulate_grad_hook(update)

    def step(x: Any) -> Any:
        a.grad = b.grad = None
        try:
            ((a * b.detach()).tanh() + b).backward(x)
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (a.grad, b.grad, a, b))


@BROKEN
def a_hook_that_returns_older_memory() -> World:
    kept = torch.zeros(2, 3, 4)
    a = values(3, 4).requires_grad_()
    a.register_hook(lambda grad: kept[0].copy_(grad))

    def step(x: Any) -> Any:
        a.grad = None
        (a * 2).backward(x)
        a.grad.add_(1)
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (a.grad, kept))


# ---------------------------------------------------------------------- gradients that tensors keep


@CAPTURED
def a_kept_gradient() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        hidden = model[1](model[0](x))
        hidden.retain_grad()
        out = model[2](hidden)
        out.retain_grad()
        loss = F.mse_loss(out, y)
        loss.backward()
        optimiser.step()
        return hidden.grad, out.grad.sum(), hidden.grad.stride()
    return with_network(lambda model, seen: None, step=step)


@CAPTURED
def a_kept_gradient_of_two_passes() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        hidden = model[1](model[0](x))
        hidden.retain_grad()
        loss = F.mse_loss(model[2](hidden), y)
        loss.backward(retain_graph=True)
        first = hidden.grad
        loss.backward()
        return first, hidden.grad, hidden.grad is first
    return with_network(lambda model, seen: None, step=step)


@BROKEN
def a_kept_gradient_behind_a_hook() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        hidden = model[1](model[0](x))
        hidden.retain_grad()
        hidden.register_hook(lambda grad: grad * 2)
        F.mse_loss(model[2](hidden), y).backward()
        return hidden.grad
    return with_network(lambda model, seen: None, step=step)


@BROKEN
def a_kept_gradient_that_leaves() -> World:
    kept: list[Any] = []

    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        hidden = model[1](model[0](x))
        hidden.retain_grad()
        kept.append(hidden)
        F.mse_loss(model[2](hidden), y).backward()
        return hidden.grad.sum()
    return with_network(lambda model, seen: None, step=step)


# ---------------------------------------------------------------------- gradients of gradients


@CAPTURED
def a_penalty_on_gradients() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward(create_graph=True)
        penalty = sum(each.grad.pow(2).sum() for each in model.parameters())
        penalty.backward()
        optimiser.step()
        return loss.detach(), penalty.detach(), [each.grad.requires_grad for each in model.parameters()]
    return with_network(lambda model, seen: None, step=step)


@CAPTURED
def a_penalty_alone() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward(create_graph=True)
        slopes = [each.grad for each in model.parameters()]
        optimiser.zero_grad()
        penalty = sum(each.pow(2).sum() for each in slopes)
        (loss + penalty).backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()
    return with_network(lambda model, seen: None, step=step)


@CAPTURED
def accumulated_with_a_graph() -> World:
    weight = values(3, 4).requires_grad_()

    def step(x: Any) -> Any:
        weight.grad = None
        (x * weight ** 2).sum().backward()
        before = weight.grad
        (x * weight ** 3).sum().backward(create_graph=True)
        (x * weight ** 4).sum().backward(create_graph=True)
        total = weight.grad.pow(2).sum()
        slope, = torch.autograd.grad(total, weight)
        weight.grad = weight.grad.detach()
        return before, slope, before is weight.grad
    return World(step, lambda i: (values(3, 4, seed=i),), lambda: (weight, weight.grad))


@CAPTURED
def an_inner_step() -> World:
    """Adapt a copy of the weights to one task, and differentiate through that."""
    weight = values(4, 1).requires_grad_()
    optimiser = torch.optim.SGD([weight], 0.1)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        adapted = weight.clone()
        adapted.retain_grad()
        ((x @ adapted - y) ** 2).mean().backward(create_graph=True)
        moved = adapted - 0.1 * adapted.grad
        weight.grad = None
        loss = ((x @ moved - y) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss.detach()
    return World(step, batch, lambda: (weight.detach(), weight.grad.detach()))


# ---------------------------------------------------------------------- hooks on saved tensors


def under_saved_tensors_hooks(pack: Any, unpack: Any, look: Any = lambda: None) -> World:
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        return loss
    return World(step, batch, lambda: (look_at(model, optimiser)(), look()))


@CAPTURED
def saved_on_the_cpu() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        with torch.autograd.graph.save_on_cpu():
            loss = F.mse_loss(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss
    return with_network(lambda model, seen: [], step=step)


@CAPTURED
def saved_with_less_precision() -> World:
    return under_saved_tensors_hooks(
        lambda saved: saved.to(torch.float16) if saved.is_floating_point() else saved,
        lambda packed: packed.float() if packed.is_floating_point() else packed)


@CAPTURED
def doubled_by_hooks() -> World:
    def step(model: Any, optimiser: Any, x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved * 2, lambda packed: packed):
            loss = F.mse_loss(model(x), y)
        slopes = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        loss.backward()
        optimiser.step()
        return loss.detach(), slopes
    return with_network(lambda model, seen: [], step=step)


@BROKEN
def unpacked_by_a_function_with_effects() -> World:
    unpacked: list[int] = []
    return under_saved_tensors_hooks(lambda saved: saved, lambda packed: unpacked.append(1) or packed,
                                     lambda: len(unpacked))


@BROKEN
def unpacked_in_another_layout() -> World:
    return under_saved_tensors_hooks(lambda saved: saved, lambda packed: packed.t().contiguous().t())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CAPTURED, ids=lambda make: make.__name__)
def test_captured(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert compare(make, 6, backend, 0.0 if backend == "eager" else 1e-5).causes == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", BROKEN, ids=lambda make: make.__name__)
def test_left_to_the_engine(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    causes = compare(make, 5, backend, 0.0 if backend == "eager" else 1e-5).causes
    assert causes and all("backward pass" in cause or "gradient" in cause or "saved" in cause for cause in causes), causes
