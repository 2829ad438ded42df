"""`backward()` in captured code through functions, checkpoints, recurrent layers and hooks, beside eager."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import stator
from stator import events
from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import look_at, values

CAPTURED, CHECKPOINTS = Register(), Register()
BACKENDS = ("eager", "aot_eager")


def stepped(forward: Any, *weights: Any) -> World:
    """A step of Adam on the leaves of `forward(x)`."""
    optimiser = torch.optim.Adam(weights, lr=0.1)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        loss = forward(x)
        loss.backward()
        optimiser.step()
        return loss, torch.rand(2)
    return World(step, lambda i: (values(4, 4, seed=i),), lambda: (weights, [each.grad for each in weights]))


def pair() -> tuple[Any, Any]:
    return values(4, 4).requires_grad_(), values(4, 4, seed=4).requires_grad_()


class Rounded(torch.autograd.Function):
    """With a saved tensor and a number."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, = ctx.saved_tensors
        return grad * ctx.scale * (x.abs() < 1), None


class Several(torch.autograd.Function):
    """With results of which one has no gradient and one is not used."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y, x > y, x + y

    @staticmethod
    def backward(ctx: Any, first: Any, _: Any, third: Any) -> Any:
        x, y = ctx.saved_tensors
        return first * y + third, first * x + third


class Reversed(torch.autograd.Function):
    """With a view of its argument as result: autograd itself handles it."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return -grad


@CAPTURED
def a_rounding_function() -> World:
    a, b = pair()
    return stepped(lambda x: (Rounded.apply(x @ a, 2.0) * b).sum(), a, b)


@CAPTURED
def a_function_with_several_results() -> World:
    a, b = pair()

    def forward(x: Any) -> Any:
        product, larger, _ = Several.apply(x @ a, b)
        return (product * larger).sum()
    return stepped(forward, a, b)


@CAPTURED
def a_reversed_gradient() -> World:
    a, b = pair()
    return stepped(lambda x: (Reversed.apply(x @ a) * b).sum(), a, b)


@CAPTURED
def an_inference_mode_before() -> World:
    a, b = pair()

    def forward(x: Any) -> Any:
        with torch.inference_mode():
            scale = x.exp().sum().item()
        return ((x * a).exp() @ b).sum() / scale
    return stepped(forward, a, b)


@CAPTURED
def a_recurrent_layer_with_dropout() -> World:
    model = nn.LSTM(4, 3, 2, dropout=0.5)
    state = [torch.zeros(2, 1, 3), torch.zeros(2, 1, 3)]

    def forward(x: Any) -> Any:
        out, (hidden, cell) = model(x.unsqueeze(1), (state[0].detach(), state[1].detach()))
        state[:] = hidden, cell
        return out.pow(2).sum()
    return stepped(forward, *model.parameters())


@CAPTURED
def a_recurrent_layer_without_gradients() -> World:
    model, last = nn.GRU(4, 3, 2, dropout=0.5), nn.Linear(3, 2)

    def forward(x: Any) -> Any:
        with torch.no_grad():
            out, _ = model(x)
        return last(out).pow(2).sum()
    return stepped(forward, *last.parameters())


@CAPTURED
def two_passes_through_a_layer() -> World:
    """The first one must not consume what a compiler has saved for the second."""
    model, (a, b) = nn.GRU(4, 4), pair()

    def step(x: Any) -> Any:
        out, _ = model(x)
        first, second = (out * a).sum(), (b * b).exp().sum()
        first.backward()
        second.backward()
        return first, second
    return World(step, lambda i: (values(4, 4, seed=i),), lambda: (look_at(model)(), a.grad, b.grad))


@CAPTURED
def tensors_made_of_tensors() -> World:
    a, b = pair()

    def forward(x: Any) -> Any:
        aim = x.sum(1)
        return sum(F.smooth_l1_loss((x[i] * a[i] * b[i]).sum().unsqueeze(0), torch.tensor([aim[i]])) for i in range(3))
    return stepped(forward, a, b)


# ---------------------------------------------------------------------- the CTC loss, whose kernel reads lengths


def spoken(reduction: str, batched: bool = True) -> World:
    weight = values(4, 5).requires_grad_()

    def step(x: Any, targets: Any, lengths: Any, others: Any) -> Any:
        weight.grad = None
        logs = (x @ weight).log_softmax(-1)
        loss = F.ctc_loss(logs, targets, lengths, others, reduction=reduction, zero_infinity=True)
        loss.sum().backward()
        return loss.detach()

    def arguments(number: int) -> Any:
        size = (2,) if batched else ()
        lengths = torch.full(size, 6), torch.full(size, 1 + number % 2 if batched else 2)
        return (values(6, *size, 4, seed=number), torch.ones((*size, 2), dtype=torch.int64) + number % 3, *lengths)
    return World(step, arguments, lambda: (weight.detach(), weight.grad))


@CAPTURED
def ctc_loss() -> World:
    return spoken("mean")


@CAPTURED
def ctc_losses_of_a_batch() -> World:
    return spoken("none")


@CAPTURED
def ctc_loss_of_one_sequence() -> World:
    return spoken("sum", batched=False)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CAPTURED, ids=lambda make: make.__name__)
def test_captured(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 3, backend, 0.0 if backend == "eager" else 1e-5)
    assert report.causes == [] and not report.of(events.EagerFallback)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["function", "recurrent layer"])
def test_gradients_of_gradients_are_left_to_the_engine(kind: str, backend: str) -> None:
    def make() -> World:
        (a, b), layer = pair(), nn.GRU(4, 4)

        def forward(x: Any) -> Any:
            out = Several.apply(x @ a, b)[0] if kind == "function" else layer(x @ a)[0] * b
            slope, = torch.autograd.grad(out.pow(2).sum(), a, create_graph=True)
            return out.sum() + slope.pow(2).sum()
        return stepped(forward, a, b)
    causes = compare(make, 3, backend, 0.0 if backend == "eager" else 1e-4).causes
    assert any("twice through" in cause for cause in causes)


class Leaning(torch.autograd.Function):
    """With a backward that is not linear: called once for the sum of two gradients, not once for each."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, = ctx.saved_tensors
        return grad * 2 + x


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_behind_a_loss_and_its_penalty(backend: str) -> None:
    def make() -> World:
        a, b = pair()

        def forward(x: Any) -> Any:
            loss = (Leaning.apply(x @ a) @ b).pow(2).mean()
            slope, = torch.autograd.grad(loss, a, create_graph=True)
            return loss + slope.pow(2).sum()
        return stepped(forward, a, b)
    causes = compare(make, 2, backend, 0.0 if backend == "eager" else 1e-4).causes
    assert any("twice through" in cause for cause in causes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_used_in_an_inference_mode_is_no_inference_tensor(backend: str) -> None:
    def step(x: Any) -> Any:
        with torch.inference_mode():
            y = x + 1
        return x.is_inference(), y.is_inference()
    assert compare(lambda: World(step, lambda i: (values(2),)), 2, backend).causes == []


# ---------------------------------------------------------------------- checkpoints


def policy(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


def checkpointed(**options: Any) -> World:
    a, b = pair()
    return stepped(lambda x: checkpoint(lambda z: F.dropout(z @ a, 0.5).tanh() @ b, x * b, **options).sum(), a, b)


@CHECKPOINTS
def a_checkpoint() -> World:
    return checkpointed(use_reentrant=False)


@CHECKPOINTS
def a_reentrant_checkpoint() -> World:
    return checkpointed(use_reentrant=True)


@CHECKPOINTS
def a_checkpoint_with_a_policy() -> World:
    a, b = pair()
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return stepped(lambda x: checkpoint(lambda z: (z @ a).tanh() @ b, x, use_reentrant=False, context_fn=contexts).sum(),
                   a, b)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CHECKPOINTS, ids=lambda make: make.__name__)
def test_checkpoints(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert compare(make, 3, backend, 0.0 if backend == "eager" else 1e-5).causes == []


def test_a_write_to_what_a_checkpoint_does_not_save() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.first.register_full_backward_hook(lambda module, grads, _: tuple(
                None if each is None else each * 0.5 for each in grads))

        def step(self, x: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(lambda value: torch.tanh(self.second(value)), self.first(x), use_reentrant=False)
            loss = torch.relu_(hidden).square().sum()
            loss.backward()
            return loss.detach()

    torch.manual_seed(0)
    eager, x = Layer(), torch.randn(2, 4, requires_grad=True)
    model = copy.deepcopy(eager)
    compiled = stator.compile(model.step, backend="aot_eager")
    for _ in range(2):
        assert torch.equal(eager.step(x), compiled(x))
        for left, right in zip(eager.parameters(), model.parameters(), strict=True):
            assert torch.equal(left.grad, right.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_lengths_that_the_kernel_refuses(backend: str) -> None:
    def make() -> World:
        weight = values(4, 5).requires_grad_()

        def step(x: Any, length: Any) -> Any:
            logs = (x @ weight).log_softmax(-1)
            loss = torch.ctc_loss(logs, torch.ones(1, 2, dtype=torch.int64), length, torch.tensor([2]))
            loss.backward()
            return loss.detach()
        return World(step, lambda i: (values(6, 1, 4, seed=i), torch.tensor([9 if i == 2 else 6])),
                     lambda: weight.grad)
    report = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5)
    assert "input_lengths" in str(report.of(events.EagerFallback))
