"""Small models of the usual kinds, to be trained: BERT-, GPT-2-, Llama-, ViT-, UNet-, GCN- and LSTM-like.

In: nothing.  Out: `TRAINED`, name -> (a module whose call gives a loss, a factory of its batches).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, WORDS = 32, 4, 50


class Attention(nn.Module):
    def __init__(self, causal: bool, groups: int = HEADS, rotary: bool = False) -> None:
        super().__init__()
        self.causal, self.rotary, size = causal, rotary, WIDTH // HEADS
        self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, groups * size), nn.Linear(WIDTH, groups * size)
        self.out, self.groups = nn.Linear(WIDTH, WIDTH), groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (part(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for part in (self.q, self.k, self.v))
        if self.rotary:
            q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(HEADS // self.groups, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


def rotate(x: torch.Tensor) -> torch.Tensor:
    length, size = x.shape[-2:]
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
    left, right = x[..., ::2], x[..., 1::2]
    return torch.cat([left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos()], -1)


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False),
                                         nn.Linear(2 * WIDTH, WIDTH, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Normalised before (GPT, Llama, ViT) or after (BERT) each half."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, norm: Callable[[], nn.Module], after: bool = False) -> None:
        super().__init__()
        self.attention, self.mlp, self.after = attention, mlp, after
        self.first, self.second = norm(), norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.after:
            x = self.first(x + self.attention(x))
            return self.second(x + self.mlp(x))
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


def norm() -> nn.Module:
    return nn.LayerNorm(WIDTH)


class Words(nn.Module):
    """Embedding, layers, and a loss over the vocabulary."""

    def __init__(self, layers: list[nn.Module], places: bool, last: nn.Module, tied: bool = False) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.places = nn.Embedding(16, WIDTH) if places else None
        self.layers, self.last = nn.ModuleList(layers), last
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.last(x)).flatten(0, 1), targets.flatten(), ignore_index=-100)


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.mark, self.places = nn.Parameter(torch.zeros(1, 1, WIDTH)), nn.Parameter(torch.zeros(1, 17, WIDTH))
        self.layers = nn.Sequential(*(Layer(Attention(False), mlp(), norm) for _ in range(2)))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.mark.expand(len(x), -1, -1), x], 1) + self.places
        return F.cross_entropy(self.head(self.layers(x)[:, 0]), label)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        def half(inside: int, outside: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside),
                                 nn.ReLU(inplace=True))
        self.down, self.bottom = half(3, 8), half(8, 16)
        self.up, self.merge, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), half(16, 8), nn.Conv2d(8, 3, 1)

    def forward(self, image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        skip = self.down(image)
        x = self.up(self.bottom(F.max_pool2d(skip, 2)))
        return F.mse_loss(self.out(self.merge(torch.cat([skip, x], 1))), target)


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.spread(self.first(nodes), edges))
        return F.nll_loss(F.log_softmax(self.spread(self.second(x), edges), -1), labels)

    def spread(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        start, end = edges
        degree = torch.ones(len(x)).index_add(0, end, torch.ones(len(end)))
        weight = (degree[start] * degree[end]).rsqrt()
        return x / degree[:, None] + torch.zeros_like(x).index_add(0, end, x[start] * weight[:, None])


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        output, (hidden, _) = self.lstm(self.tokens(ids))
        return F.cross_entropy(self.head(output).flatten(0, 1), targets.flatten()) + 1e-3 * hidden.pow(2).mean()


# ---------------------------------------------------------------------- batches


def causal_words(step: int) -> tuple[Any, ...]:
    ids = torch.randint(WORDS, (4, 13))
    return ids[:, :-1], ids[:, 1:]


def masked_words(step: int) -> tuple[Any, ...]:
    ids = torch.randint(WORDS, (4, 12))
    return ids.masked_fill(torch.rand(4, 12) < 0.3, 0), ids.masked_fill(torch.rand(4, 12) > 0.3, -100)


def images(step: int) -> tuple[Any, ...]:
    return torch.randn(4, 3, 16, 16), torch.randint(5, (4,))


def pictures(step: int) -> tuple[Any, ...]:
    return torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)


def graph(step: int) -> tuple[Any, ...]:
    return torch.randn(10, 8), torch.randint(10, (2, 30)), torch.randint(4, (10,))


TRAINED: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Any, ...]]]] = {
    "bert": (lambda: Words([Layer(Attention(False), mlp(), norm, after=True) for _ in range(2)], True, nn.Identity()),
             masked_words),
    "gpt2": (lambda: Words([Layer(Attention(True), mlp(), norm) for _ in range(2)], True, norm(), tied=True), causal_words),
    "llama": (lambda: Words([Layer(Attention(True, 2, rotary=True), SwiGLU(), RMSNorm) for _ in range(2)], False, RMSNorm()),
              causal_words),
    "vit": (ViT, images),
    "unet": (UNet, pictures),
    "gcn": (GCN, graph),
    "lstm": (LSTM, causal_words),
}
