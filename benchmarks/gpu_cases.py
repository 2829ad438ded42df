"""The rows of the GPU table.   name, device  ->  something to compile and one step that calls it

A case is built anew for each target, from one seed, so that no target sees the weights or caches of another.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu_models import GPT, Llama, LlamaSizes, UNet, VideoTransformer, ViT, generate
from tests.models.torchvision_ops import declare_missing


@dataclass
class Case:
    """`step(target)` makes one step with the model or its compiled form, and returns what is compared with eager."""

    model: nn.Module
    step: Callable[[Any], Tensor]
    call: Callable[[Any], Any]  # one call of the target alone, for the time that guards and dispatch take
    frames: int = 0  # frames of video in a step; 0: the row counts milliseconds
    training: bool = False


Builder = Callable[[torch.device, bool], Case]
CASES: dict[str, Builder] = {}


def case(name: str) -> Callable[[Builder], Builder]:
    def register(build: Builder) -> Builder:
        CASES[name] = build
        return build
    return register


def _ready(model: nn.Module, device: torch.device) -> nn.Module:
    """In bfloat16 on a GPU; a CPU dry run keeps float32, which it is fast in."""
    for buffer in model.buffers():
        buffer.requires_grad_(False)
    return model.to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)


_TINY = LlamaSizes(dim=64, layers=2, heads=4, kv_heads=2, hidden=128, vocab=256, length=32)


def _llama_sizes(tiny: bool) -> LlamaSizes:
    return _TINY if tiny else LlamaSizes()


@case("llama-prefill")
def llama_prefill(device: torch.device, tiny: bool) -> Case:
    sizes = _llama_sizes(tiny)
    model = _ready(Llama(sizes), device).eval()
    length = 16 if tiny else 128
    tokens = torch.randint(0, sizes.vocab, (1, length), device=device)
    positions = torch.arange(length, device=device)
    return Case(model, lambda target: target(tokens, positions), lambda target: target(tokens, positions))


@case("llama-decode")
def llama_decode(device: torch.device, tiny: bool) -> Case:
    """A token at a time, into a static KV cache; the position moves on, in place."""
    sizes = _llama_sizes(tiny)
    model = _ready(Llama(sizes, cached=True), device).eval()
    tokens = torch.randint(0, sizes.vocab, (1, 1), device=device)
    position = torch.zeros(1, dtype=torch.long, device=device)

    def step(target: Any) -> Tensor:
        position.add_(1).remainder_(sizes.length)
        return target(tokens, position)

    return Case(model, step, lambda target: target(tokens, position))


@case("llama-transformers")
def llama_transformers(device: torch.device, tiny: bool) -> Case:
    """The library's own Llama, where it is installed: more Python around the same operators."""
    declare_missing()
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = _llama_sizes(tiny)
    config = LlamaConfig(hidden_size=sizes.dim, intermediate_size=sizes.hidden, num_hidden_layers=sizes.layers,
                         num_attention_heads=sizes.heads, num_key_value_heads=sizes.kv_heads, vocab_size=sizes.vocab,
                         use_cache=False)
    model = _ready(LlamaForCausalLM(config), device).eval()
    tokens = torch.randint(0, sizes.vocab, (1, 16 if tiny else 128), device=device)
    return Case(model, lambda target: target(tokens).logits, lambda target: target(tokens))


@case("vit")
def vit(device: torch.device, tiny: bool) -> Case:
    model = _ready(ViT(64, 2, 4, 32, 8) if tiny else ViT(), device).eval()
    images = torch.randn(1, 3, 32 if tiny else 224, 32 if tiny else 224, device=device, dtype=model.head.weight.dtype)
    return Case(model, lambda target: target(images), lambda target: target(images))


@case("unet")
def unet(device: torch.device, tiny: bool) -> Case:
    model = _ready(UNet((16, 32)) if tiny else UNet(), device).eval()
    side = 16 if tiny else 64
    latent = torch.randn(1, 4, side, side, device=device, dtype=model.first.weight.dtype)
    step = torch.full((1,), 500, device=device)
    return Case(model, lambda target: target(latent, step), lambda target: target(latent, step))


@case("unet-diffusers")
def unet_diffusers(device: torch.device, tiny: bool) -> Case:
    """The library's own UNet, where it is installed."""
    declare_missing()
    from diffusers import UNet2DConditionModel

    channels = (16, 32) if tiny else (320, 640)
    build: Any = UNet2DConditionModel
    model = _ready(build(sample_size=16 if tiny else 64, block_out_channels=channels, layers_per_block=1,
                         norm_num_groups=8, cross_attention_dim=32, attention_head_dim=4,
                         down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                         up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")), device).eval()
    side = 16 if tiny else 64
    dtype = next(model.parameters()).dtype
    latent = torch.randn(1, 4, side, side, device=device, dtype=dtype)
    text = torch.randn(1, 5, 32, device=device, dtype=dtype)
    step = torch.tensor(10, device=device)
    return Case(model, lambda target: target(latent, step, text).sample, lambda target: target(latent, step, text))


@case("gpt-train")
def gpt_train(device: torch.device, tiny: bool) -> Case:
    """Forward, backward and AdamW; the model with its loss is what is compiled."""
    model = _ready(GPT(64, 2, 4, 256, 32) if tiny else GPT(), device).train()
    batch, length, vocab = (2, 16, 256) if tiny else (8, 512, 50304)
    tokens = torch.randint(0, vocab, (batch, length + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")

    def step(target: Any) -> Tensor:
        loss = target(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return Case(model, step, lambda target: target(inputs, targets), training=True)


@case("video")
def video(device: torch.device, tiny: bool) -> Case:
    """Chunks of latent frames, denoised one after the other over a KV cache that is sliced by tensor bounds."""
    model = _ready(VideoTransformer(64, 2, 4, 16) if tiny else VideoTransformer(), device).eval()
    chunks, frames, tokens = (2, 2, 4) if tiny else (7, 3, 256)
    channels = 16 if tiny else 64
    noise = torch.randn(chunks, 1, frames * tokens, channels, device=device, dtype=model.first.weight.dtype)
    time = noise.new_zeros(1)

    def step(target: Any) -> Tensor:
        return generate(target, noise, model.new_caches(1, chunks * frames * tokens), (1.0, 0.75, 0.5, 0.25))

    caches = model.new_caches(1, chunks * frames * tokens)
    return Case(model, step, lambda target: target(noise[0], time, caches), frames=chunks * frames)


def available() -> list[str]:
    needs = {"llama-transformers": "transformers", "unet-diffusers": "diffusers"}
    return [name for name in CASES if name not in needs or importlib.util.find_spec(needs[name]) is not None]
