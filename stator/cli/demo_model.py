"""The model of the demo: a small decoder of two transformer blocks, written as people write them.

In: token numbers.  Out: logits. It has what real models have: a config object, keyword arguments, a cache of
masks in a dict, list comprehensions, branches on settings, a module list and a result object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Config:
    vocabulary: int = 64
    width: int = 32
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0
    norms: list[str] = field(default_factory=lambda: ["attention", "mlp"])


@dataclass
class Output:
    logits: torch.Tensor
    hidden: list[torch.Tensor]


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.joint = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.joint(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = scores.softmax(dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norms = nn.ModuleDict({name: nn.LayerNorm(config.width) for name in config.norms})
        self.attention = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, **options: torch.Tensor | None) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norms["attention"](x), **options))
        return x + self.dropout(self.mlp(self.norms["mlp"](x)))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.last_shape: tuple[int, ...] = ()

    def forward(self, tokens: torch.Tensor, *, causal: bool = True) -> Output:
        length = tokens.shape[1]
        self.last_shape = tuple(tokens.shape)  # a side effect, which the compiled call has to write back
        masks: dict[str, torch.Tensor | None] = {"mask": None}
        if causal:
            masks["mask"] = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        hidden = [self.embedding(tokens)]
        for block in self.blocks:
            hidden.append(block(hidden[-1], **masks))
        return Output(self.norm(hidden[-1]) @ self.embedding.weight.T, hidden)


def build(layers: int = 2) -> tuple[Decoder, torch.Tensor]:
    """The model in eval mode, and tokens for it; the same numbers each time."""
    torch.manual_seed(0)
    config = Config(layers=layers)
    return Decoder(config).eval(), torch.randint(config.vocabulary, (2, 16))
