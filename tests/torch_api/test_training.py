"""Modules in training: three steps of an optimiser, captured, beside the same steps run eagerly.

Compared after each step: outputs and how they alias, gradients, parameters, buffers, and what hooks saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import stator
from stator import events


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(dropout), nn.Linear(32, 16))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.after(x))


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = kind(4, 5, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        output, state = self.layer(x)
        return output.sum() + 2 * (state[0] if isinstance(state, tuple) else state).sum()


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.seen = nn.Linear(4, 4), nn.Linear(4, 4), []
        self.first.register_forward_hook(lambda module, args, output: output * 2)
        self.second.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        self.second.register_forward_hook(lambda module, args, kwargs, output: self.seen.append(output.shape),
                                          with_kwargs=True)

    def forward(self, x):
        return self.second(self.first(x))


class BackwardHooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 4), []
        self.layer.register_full_backward_hook(self.note)

    def note(self, module, inputs, outputs):
        self.seen.append(len(outputs))

    def forward(self, x):
        return self.layer(x)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.outer, self.reentrant = nn.Linear(4, 4), nn.Linear(4, 4), reentrant

    def forward(self, x):
        x = checkpoint(lambda t: torch.sin(self.inner(t)).relu(), x, use_reentrant=self.reentrant)
        return self.outer(torch.tanh(x))


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


def parametrized() -> nn.Module:
    layer = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


class Counting(nn.Module):
    """Buffers changed in place, replaced, and a Python counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))
        self.weight, self.steps = nn.Parameter(torch.ones(4)), 0

    def forward(self, x):
        self.mean.add_(x.detach().mean(0))
        self.count += 1
        self.steps += 1
        with torch.no_grad():
            self.mean = self.mean * 0.5 + self.weight * 0.1
        return x * self.weight + self.mean


class Aliases(nn.Module):
    """Views of each other, of the input and of a parameter as outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        y = x @ self.weight
        return y, y.view(-1), y[0], x, x.t(), self.weight, self.weight.t()


class Mixed(nn.Module):
    """Tied weights, autocast, a branch without gradients, in-place changes of views."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4, padding_idx=0)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        hidden = self.embed((x.abs() * 10).long() % 10)
        with torch.no_grad():
            scale = self.head(hidden).mean()
        hidden = hidden * 2
        hidden[:, 0] = 0
        hidden[1].mul_(3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.head(hidden)
        return F.cross_entropy(logits.float().flatten(0, -2), torch.arange(x.numel()) % 10) * scale.detach()


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (Block, (2, 5, 16)),
    "block with dropout": (lambda: Block(0.3), (2, 5, 16)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
    "attention": (Attended, (2, 5, 16)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 6, 6)),
    "rnn": (lambda: Recurrent(nn.RNN), (2, 3, 4)),
    "lstm": (lambda: Recurrent(nn.LSTM), (2, 3, 4)),
    "gru": (lambda: Recurrent(nn.GRU), (2, 3, 4)),
    "hooks": (Hooked, (2, 4)),
    "backward hook": (BackwardHooked, (2, 4)),
    "checkpoint": (lambda: Checkpointed(False), (2, 4)),
    "reentrant checkpoint": (lambda: Checkpointed(True), (2, 4)),
    "parametrization": (parametrized, (2, 4)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), (2, 4)),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), (2, 4)),
    "counting": (Counting, (2, 4)),
    "aliases": (Aliases, (4, 4)),
    "mixed": (Mixed, (2, 4)),
    "dropouts": (lambda: nn.Sequential(nn.Dropout(0.5), nn.AlphaDropout(0.3), nn.Dropout1d(0.2)), (2, 3, 4)),
}
OTHER_STREAM = {"block with dropout", "encoder layer", "dropouts"}  # compilers may draw random numbers in another order


def steps(make: Callable[[], nn.Module], shape: tuple[int, ...], training: bool, backend: str | None) -> list[Any]:
    """The state that three steps leave behind."""
    torch.manual_seed(0)
    module = make().train(training)
    function = module if backend is None else stator.compile(module, backend=backend)
    parameters = list(module.parameters())
    optimiser = torch.optim.SGD(parameters, lr=0.1) if parameters else None
    left = []
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(shape).requires_grad_(step != 1)
        outputs = [t for t in tree_leaves(function(x)) if isinstance(t, torch.Tensor)]
        learning = [t for t in outputs if t.requires_grad]
        if learning:
            sum((t.float() * torch.linspace(0.5, 1, t.numel()).view_as(t)).sum() for t in learning).backward()
        alias = [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in (*outputs, x) for b in (*outputs, x)]
        left.append({
            "outputs": [t.detach().clone() for t in outputs],
            "flags": [(t.requires_grad, t.is_leaf, t.stride()) for t in outputs],
            "alias": alias,
            "gradients": [None if t.grad is None else t.grad.clone() for t in (x, *parameters)],
            "state": {name: value.clone() for name, value in module.state_dict().items()},
            "python": (getattr(module, "steps", None), list(getattr(module, "seen", []))),
            "stream": torch.get_rng_state(),
        })
        if optimiser is not None:
            optimiser.step()
            optimiser.zero_grad()
    return left


@pytest.mark.parametrize("backend,training", [("eager", True), ("eager", False), ("aot_eager", True)],
                         ids=["eager-train", "eager-eval", "aot_eager-train"])
@pytest.mark.parametrize("name", MODULES)
def test_three_steps_equal_eager(name: str, backend: str, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend != "eager" and training and name in OTHER_STREAM:
        pytest.skip("the random stream is the compiler's")
    monkeypatch.setenv("STATOR_STRICT", "1")
    make, shape = MODULES[name]
    with events.record() as log:
        found = steps(make, shape, training, backend)
    expected = steps(make, shape, training, None)
    for left, right in zip(expected, found, strict=True):
        if backend != "eager":
            del left["stream"], right["stream"]
        torch.testing.assert_close(right, left, rtol=2e-4, atol=2e-4)
    stops = [event.code for event in log if isinstance(event, events.GraphBreak)]
    assert not stops
