"""Random numbers that nobody uses move torch's stream as in eager: in the graph, after the call, after the backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.node import _side_effectful_functions
from torch.utils.checkpoint import checkpoint

import stator
from stator import events
from tests.comparison import Programs

programs = Programs()
in_branches = Programs()

DRAWS: dict[str, Any] = {
    "rand": lambda x: torch.rand([]),
    "randn": lambda x: torch.randn(2),
    "randint": lambda x: torch.randint(3, (2,)),
    "randperm": lambda x: torch.randperm(3),
    "rand_like": torch.rand_like,
    "bernoulli": lambda x: torch.bernoulli(x.detach().sigmoid()),
    "multinomial": lambda x: torch.multinomial(x.detach().abs(), 2),
    "normal": lambda x: torch.normal(x.detach(), 1.0),
    "normal_": lambda x: torch.empty(3).normal_(),
    "uniform_": lambda x: x.clone().uniform_(),
    "exponential_": lambda x: torch.empty(3).exponential_(),
    "poisson": lambda x: torch.poisson(x.detach().abs()),
    "dropout of nothing": lambda x: F.dropout(x, 0.0),
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout of everything": lambda x: F.dropout(x, 1.0),
    "dropout in eval": lambda x: F.dropout(x, 0.5, training=False),
    "dropout1d": lambda x: F.dropout1d(x.expand(2, 2, 3)),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.expand(1, 1, 4, 3)] * 3, dropout_p=0.3),
}


def outcome(function: Any, learns: bool, calls: int = 2) -> list[Any]:
    """Values, gradients and the stream after each step."""
    torch.manual_seed(0)
    seen: list[Any] = []
    for _ in range(calls):
        x = torch.arange(1.0, 4.0).requires_grad_(learns)
        y = function(x)
        seen += [y.detach(), torch.get_rng_state(), torch.rand(2)]
        if y.requires_grad:
            y.sum().backward()
            seen += [x.grad, torch.get_rng_state()]
    return seen


def require_equal(function: Any, backend: str, learns: bool, **options: Any) -> None:
    expected = outcome(function, learns)
    stator.reset()
    with events.record() as log:
        found = outcome(stator.compile(function, backend=backend, fullgraph=True, **options), learns)
    assert not [event for event in log if isinstance(event, events.EagerFallback)], "the backend has it"
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_an_unused_draw(name: str, learns: bool, backend: str) -> None:
    def program(x):
        DRAWS[name](x)
        return x * torch.rand(3)
    require_equal(program, backend, learns)


@pytest.mark.parametrize("learns", [False, True])
def test_nothing_but_an_unused_draw(learns: bool) -> None:
    def program(x):
        torch.randn(2)
        return x + 1
    require_equal(program, "aot_eager", learns)


def test_without_gradients() -> None:
    def program(x):
        with torch.no_grad():
            torch.rand([])
            y = x * torch.rand(3)
            F.dropout(y)
        return x + y
    require_equal(program, "aot_eager", True)


@pytest.mark.parametrize("training", [False, True])
def test_layers_that_ask_before_they_know_whether_they_learn(training: bool) -> None:
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                chance = torch.rand([])
                if self.training:
                    x = torch.where(chance < 0.5, x, F.dropout(layer(x)))
                else:
                    x = layer(x)
            return x * torch.rand(3)
    require_equal(Layers().train(training), "aot_eager", True)


# ---------------------------------------------------------------------- the backward pass


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torch.rand([])
        return x * torch.rand(3)

    @staticmethod
    def backward(ctx, grad):
        torch.rand([])
        first, second = torch.rand(3), torch.rand(3)
        return grad * second + first


@programs
def function_that_draws_in_both_passes(x):
    return Noisy.apply(x) * torch.rand(3)


@programs
def hook_that_draws(x):
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda grad: grad + torch.rand(3))
    return y * torch.rand(3)


@programs
def checkpoints(x):
    checkpoint(lambda x: F.dropout(x.sin()), x, use_reentrant=False)
    return checkpoint(lambda x: (torch.rand([]), F.dropout(x.sin()).sin())[1], x, use_reentrant=False) * torch.rand(3)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("name", programs)
def test_draws_stay_in_their_pass(name: str, backend: str) -> None:
    require_equal(programs[name], backend, True)


# ---------------------------------------------------------------------- branches


@in_branches
def unused_branch(x):
    torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x - torch.rand(3), (x,))
    return x * torch.rand(3)


@in_branches
def unused_draw_in_a_branch(x):
    def either(x):
        torch.rand([])
        return x * torch.rand(3)
    return torch.cond(x.sum() > 0, either, lambda x: x - 1, (x,)) * torch.rand(3)


@in_branches
def unused_branch_in_a_branch(x):
    def either(x):
        torch.cond(x.sum() > 1, lambda x: x + torch.rand(3), lambda x: x - torch.rand(3), (x,))
        return x * torch.rand(3)
    return torch.cond(x.sum() > 0, either, lambda x: x - 1, (x,)) * torch.rand(3)


@in_branches
def captured_branch(x):
    if x.sum() > 0:
        torch.rand([])
        y = x * torch.rand(3)
    else:
        y = x - 1
    return y * torch.rand(3)


@in_branches
def unused_loop(x):
    while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + torch.rand(3)), (torch.tensor(0), x.detach()))
    return x * torch.rand(3)


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", in_branches)
def test_draws_in_branches(name: str, learns: bool) -> None:
    marked = set(_side_effectful_functions)
    require_equal(in_branches[name], "aot_eager", learns, options={"capture_control_flow": True})
    assert set(_side_effectful_functions) == marked, "what torch knows of its operators is as before"


@pytest.mark.parametrize("learns", [False, True])
def test_the_stream_is_put_back_where_a_branch_has_drawn_before_an_error(learns: bool) -> None:
    def program(x):
        y = torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x - torch.rand(3), (x,))
        return y[torch.tensor([7])]

    def after(function):
        torch.manual_seed(0)
        with pytest.raises(IndexError):
            function(torch.arange(1.0, 4.0).requires_grad_(learns))
        return torch.get_rng_state()

    for backend in ("eager", "aot_eager"):
        stator.reset()
        assert torch.equal(after(stator.compile(program, backend=backend)), after(program)), backend


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("program", [
    lambda x: (torch.linalg.eigh(x.expand(3, 3) * float("nan")), x * 2)[1],
    lambda x: (torch.cond(x.sum() > 0, lambda x: x[torch.tensor([7])], lambda x: x[:1] * 1, (x,)), x * 2)[1],
], ids=["eigh", "cond"])
def test_an_unused_operator_of_many_results_fails_as_in_eager(program: Any, learns: bool) -> None:
    x = torch.arange(1.0, 4.0).requires_grad_(learns)
    with pytest.raises((IndexError, torch.linalg.LinAlgError)) as expected:
        program(x)
    with pytest.raises(expected.type):
        stator.compile(program, backend="aot_eager")(x)
