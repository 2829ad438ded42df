"""Models for the GPU table, in plain torch.   Sizes -> nn.Module

Llama-like (grouped-query attention, rotary positions, an optional static KV cache), ViT, UNet, GPT with a loss, and a
causal video transformer whose KV cache is sliced by tensor bounds.  No library beyond torch, so that they run anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ---------------------------------------------------------------------- Llama


@dataclass(frozen=True)
class LlamaSizes:
    dim: int = 2048
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 8192
    vocab: int = 32000
    length: int = 1024


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return wide.type_as(x) * self.weight


def rotary_table(dim: int, length: int) -> Tensor:
    frequencies = 1.0 / 10000 ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return torch.stack([angles.cos(), angles.sin()])  # (2, length, dim / 2)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotary positions; x is (batch, heads, length, dim), table (2, length, dim / 2)."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = table[0], table[1]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).type_as(x)


class LlamaAttention(nn.Module):
    def __init__(self, sizes: LlamaSizes, cached: bool, batch: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = sizes.heads, sizes.kv_heads
        self.head = sizes.dim // sizes.heads
        self.q = nn.Linear(sizes.dim, sizes.heads * self.head, bias=False)
        self.k = nn.Linear(sizes.dim, sizes.kv_heads * self.head, bias=False)
        self.v = nn.Linear(sizes.dim, sizes.kv_heads * self.head, bias=False)
        self.o = nn.Linear(sizes.heads * self.head, sizes.dim, bias=False)
        self.cached = cached
        if cached:
            shape = (batch, sizes.kv_heads, sizes.length, self.head)
            self.register_buffer("k_cache", torch.zeros(shape), persistent=False)
            self.register_buffer("v_cache", torch.zeros(shape), persistent=False)

    def forward(self, x: Tensor, table: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head).transpose(1, 2)
        q, k = rotate(q, table), rotate(k, table)
        if self.cached:
            k = self.k_cache.index_copy_(2, positions, k)
            v = self.v_cache.index_copy_(2, positions, v)
        repeats = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o(out.transpose(1, 2).reshape(batch, length, -1))


class LlamaBlock(nn.Module):
    def __init__(self, sizes: LlamaSizes, cached: bool, batch: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(sizes.dim), RMSNorm(sizes.dim)
        self.attention = LlamaAttention(sizes, cached, batch)
        self.gate = nn.Linear(sizes.dim, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.dim, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table, positions, mask)
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Logits of the tokens at `positions`; with a cache, of one step of decoding."""

    def __init__(self, sizes: LlamaSizes, cached: bool = False, batch: int = 1) -> None:
        super().__init__()
        self.cached = cached
        self.embedding = nn.Embedding(sizes.vocab, sizes.dim)
        self.blocks = nn.ModuleList(LlamaBlock(sizes, cached, batch) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.dim)
        self.output = nn.Linear(sizes.dim, sizes.vocab, bias=False)
        self.register_buffer("table", rotary_table(sizes.dim // sizes.heads, sizes.length), persistent=False)
        self.register_buffer("places", torch.arange(sizes.length), persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.embedding(tokens)
        table = self.table[:, positions]
        mask = self.places[None, None, None, :] <= positions[None, None, :, None] if self.cached else None
        for block in self.blocks:
            x = block(x, table, positions, mask)
        return self.output(self.norm(x))


# ---------------------------------------------------------------------- encoders and GPT


class Block(nn.Module):
    """A pre-norm transformer block, as in ViT and GPT-2."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(out.transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim: int = 768, layers: int = 12, heads: int = 12, image: int = 224, patch: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, dim))
        self.places = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class GPT(nn.Module):
    """Next-token loss of a batch of tokens."""

    def __init__(self, dim: int = 768, layers: int = 12, heads: int = 12, vocab: int = 50304,
                 length: int = 1024) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, causal=True) for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


# ---------------------------------------------------------------------- UNet


class ResBlock(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class ImageAttention(nn.Module):
    def __init__(self, channels: int, heads: int = 8) -> None:
        super().__init__()
        self.norm, self.block = nn.GroupNorm(8, channels), Block(channels, heads, causal=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        y = self.block(self.norm(x).flatten(2).transpose(1, 2))
        return x + y.transpose(1, 2).view(batch, channels, height, width)


class UNet(nn.Module):
    """Noise predicted from a noisy latent and a time step."""

    def __init__(self, channels: tuple[int, ...] = (128, 256, 512), latent: int = 4) -> None:
        super().__init__()
        time = 4 * channels[0]
        self.width = channels[0]
        self.time = nn.Sequential(nn.Linear(channels[0], time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(latent, channels[0], 3, padding=1)
        pairs = list(zip(channels, channels[1:], strict=False))
        self.down = nn.ModuleList(ResBlock(a, b, time) for a, b in pairs)
        self.down_attention = nn.ModuleList(ImageAttention(b) for _, b in pairs)
        self.shrink = nn.ModuleList(nn.Conv2d(b, b, 3, stride=2, padding=1) for _, b in pairs)
        self.middle = ResBlock(channels[-1], channels[-1], time)
        self.middle_attention = ImageAttention(channels[-1])
        self.up = nn.ModuleList(ResBlock(2 * b, a, time) for a, b in reversed(pairs))
        self.last = nn.Sequential(nn.GroupNorm(8, channels[0]), nn.SiLU(), nn.Conv2d(channels[0], latent, 3, padding=1))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        half = self.width // 2
        scale = torch.exp(torch.arange(half, device=x.device) * (-9.21 / half))
        angles = step[:, None].float() * scale[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1).type_as(x))
        x = self.first(x)
        skipped: list[Tensor] = []
        for block, attention, shrink in zip(self.down, self.down_attention, self.shrink, strict=True):
            x = attention(block(x, time))
            skipped.append(x)
            x = shrink(x)
        x = self.middle_attention(self.middle(x, time))
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, skipped.pop()], dim=1), time)
        return self.last(x)


# ---------------------------------------------------------------------- video


class VideoAttention(nn.Module):
    """Attention of one chunk of frames to itself and to the frames in a KV cache, whose bounds are tensors."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).unbind(2)
        start = cache["end"]
        end = start + length
        cache["k"][:, start:end] = k
        cache["v"][:, start:end] = v
        keys, values = cache["k"][:, :end], cache["v"][:, :end]
        out = F.scaled_dot_product_attention(q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
        return self.proj(out.transpose(1, 2).reshape(batch, length, dim))


class VideoBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = VideoAttention(dim, heads)
        self.modulation = nn.Linear(dim, 2 * dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor, time: Tensor, cache: dict[str, Tensor]) -> Tensor:
        scale, shift = self.modulation(F.silu(time))[:, None].chunk(2, dim=-1)
        x = x + self.attention(self.norm1(x) * (1 + scale) + shift, cache)
        return x + self.mlp(self.norm2(x))


class VideoTransformer(nn.Module):
    """One denoising step of one chunk of latent frames: (batch, tokens, channels), a time, the caches."""

    def __init__(self, dim: int = 1024, layers: int = 12, heads: int = 16, channels: int = 64) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.first, self.last = nn.Linear(channels, dim), nn.Linear(dim, channels)
        self.time = nn.Linear(1, dim)
        self.blocks = nn.ModuleList(VideoBlock(dim, heads) for _ in range(layers))

    def new_caches(self, batch: int, tokens: int) -> list[dict[str, Tensor]]:
        like = self.first.weight
        shape = (batch, tokens, self.heads, self.dim // self.heads)
        return [{"k": like.new_zeros(shape), "v": like.new_zeros(shape), "end": torch.tensor(0)} for _ in self.blocks]

    def forward(self, x: Tensor, time: Tensor, caches: list[dict[str, Tensor]]) -> Tensor:
        embedded = self.time(time[:, None])
        x = self.first(x)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, embedded, cache)
        return self.last(x)


def generate(model: Any, noise: Tensor, caches: list[dict[str, Tensor]], steps: tuple[float, ...]) -> Tensor:
    """The loop over chunks: denoise each in a few steps, write it to the caches, go on behind it."""
    chunks = []
    for chunk in noise.unbind(0):
        x = chunk
        for time in steps:
            x = x - 0.5 * model(x, x.new_full((x.shape[0],), time), caches)
        model(x, x.new_zeros(x.shape[0]), caches)  # the clean chunk is what later chunks attend to
        for cache in caches:
            cache["end"] += x.shape[1]
        chunks.append(x)
    return torch.stack(chunks)
