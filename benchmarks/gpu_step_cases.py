"""Models of libraries for `benchmarks.gpu_steps`.   device, tiny  ->  a model, its batch and its step

A case is built anew in each process, from one seed.  Dropout is off, since compilers draw random numbers in another
order.  Training cases make whole steps with a fused AdamW.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Compile = Callable[[Any], Any]
Figures = list[Tensor]


@dataclass
class Case:
    """A model with a batch; `loss` calls the model, or its compiled form, and makes one tensor of the result."""

    model: nn.Module
    loss: Callable[[Any], Tensor]
    training: bool = False
    autocast: bool = False
    device: str = "cuda"

    def step_of(self, compiler: Compile | None, whole: bool) -> Callable[[], Figures]:
        """One step: of the compiled model, or a compiled step of the model."""
        target = self.model if whole or compiler is None else compiler(self.model)
        step = self._training_step(target) if self.training else self._inference(target)
        return compiler(step) if compiler is not None and whole else step

    def _inference(self, target: Any) -> Callable[[], Figures]:
        def infer() -> Figures:
            with torch.no_grad():
                return [self.loss(target)]
        return infer

    def _training_step(self, target: Any) -> Callable[[], Figures]:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=self.device == "cuda")
        loss_of, autocast, device = self.loss, self.autocast, self.device

        def step() -> Figures:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16) if autocast else contextlib.nullcontext():
                loss = loss_of(target)
            loss.backward()
            optimizer.step()
            return [loss.detach()]
        return step


Builder = Callable[[torch.device, bool], Case]
CASES: dict[str, Builder] = {}
NEEDS: dict[str, str] = {}
TRAINING: dict[str, bool] = {}


def case(name: str, needs: str, training: bool = False) -> Callable[[Builder], Builder]:
    def register(build: Builder) -> Builder:
        CASES[name], NEEDS[name], TRAINING[name] = build, needs, training
        return build
    return register


def available() -> dict[str, bool]:
    """The cases whose library is installed, and whether each trains."""
    return {name: TRAINING[name] for name in CASES if importlib.util.find_spec(NEEDS[name]) is not None}


def _half(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _declare() -> None:
    from tests.models.torchvision_ops import declare_missing

    declare_missing()


@case("gpt2-train", "transformers", training=True)
def gpt2_train(device: torch.device, tiny: bool) -> Case:
    _declare()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2 if tiny else 8, n_embd=64 if tiny else 768, n_head=4 if tiny else 12, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, vocab_size=300 if tiny else 50257)
    model = GPT2LMHeadModel(config).to(device, _half(device)).train()
    ids = torch.randint(0, config.vocab_size, (2, 16) if tiny else (8, 256), device=device)
    return Case(model, lambda target: target(ids, labels=ids).loss, training=True, device=device.type)


@case("bert-train-amp", "transformers", training=True)
def bert_train(device: torch.device, tiny: bool) -> Case:
    _declare()
    from transformers import BertConfig, BertForMaskedLM

    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                             "intermediate_size": 128, "vocab_size": 300} if tiny else {}
    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    model = BertForMaskedLM(config).to(device).train()
    ids = torch.randint(0, config.vocab_size, (2, 16) if tiny else (16, 128), device=device)
    mask = torch.ones_like(ids)
    return Case(model, lambda target: target(ids, attention_mask=mask, labels=ids).loss, training=True, autocast=True,
                device=device.type)


@case("resnet50-train-amp", "timm", training=True)
def resnet50_train(device: torch.device, tiny: bool) -> Case:
    _declare()
    import timm

    model = timm.create_model("resnet18" if tiny else "resnet50").to(device, memory_format=torch.channels_last).train()
    images = torch.randn(2 if tiny else 32, 3, 64 if tiny else 224, 64 if tiny else 224, device=device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (len(images),), device=device)
    return Case(model, lambda target: nn.functional.cross_entropy(target(images), labels), training=True, autocast=True,
                device=device.type)


@case("vit-train", "timm", training=True)
def vit_train(device: torch.device, tiny: bool) -> Case:
    _declare()
    import timm

    model = timm.create_model("vit_tiny_patch16_224" if tiny else "vit_base_patch16_224").to(device).train()
    images = torch.randn(2 if tiny else 32, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (len(images),), device=device)
    return Case(model, lambda target: nn.functional.cross_entropy(target(images), labels), training=True, autocast=True,
                device=device.type)


@case("qwen2", "transformers")
def qwen2(device: torch.device, tiny: bool) -> Case:
    _declare()
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(hidden_size=64 if tiny else 896, intermediate_size=128 if tiny else 4864, use_cache=False,
                         num_hidden_layers=4 if tiny else 24, num_attention_heads=4 if tiny else 14,
                         num_key_value_heads=2, vocab_size=300 if tiny else 151936)
    model = Qwen2ForCausalLM(config).to(device, _half(device)).eval()
    ids = torch.randint(0, config.vocab_size, (1, 16) if tiny else (1, 128), device=device)
    return Case(model, lambda target: target(ids).logits.float().norm(), device=device.type)


@case("vit", "transformers")
def vit(device: torch.device, tiny: bool) -> Case:
    _declare()
    from transformers import ViTConfig, ViTModel

    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                             "intermediate_size": 128, "image_size": 32, "patch_size": 8} if tiny else {}
    config = ViTConfig(**sizes)
    model = ViTModel(config).to(device, _half(device)).eval()
    images = torch.randn(4, 3, config.image_size, config.image_size, device=device, dtype=_half(device))
    return Case(model, lambda target: target(images).last_hidden_state.float().norm(), device=device.type)


@case("whisper", "transformers")
def whisper(device: torch.device, tiny: bool) -> Case:
    _declare()
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    layers = 2 if tiny else 6
    width = 64 if tiny else 512
    heads = width // 64
    config = WhisperConfig(d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
                           decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width,
                           use_cache=False, max_source_positions=50 if tiny else 1500)
    model = WhisperForConditionalGeneration(config).to(device, _half(device)).eval()
    features = torch.randn(1, config.num_mel_bins, 100 if tiny else 3000, device=device, dtype=_half(device))
    ids = torch.randint(0, 1000, (1, 8 if tiny else 64), device=device)
    return Case(model, lambda target: target(features, decoder_input_ids=ids).logits.float().norm(), device=device.type)


@case("unet", "diffusers")
def unet(device: torch.device, tiny: bool) -> Case:
    _declare()
    from diffusers import UNet2DConditionModel

    channels = (16, 32) if tiny else (320, 640, 1280, 1280)
    attention = len(channels) - 1
    build: Any = UNet2DConditionModel
    model = build(sample_size=16 if tiny else 64, block_out_channels=channels, layers_per_block=1 if tiny else 2,
                  norm_num_groups=8 if tiny else 32, cross_attention_dim=32 if tiny else 768,
                  attention_head_dim=4 if tiny else 8,
                  down_block_types=("CrossAttnDownBlock2D",) * attention + ("DownBlock2D",),
                  up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * attention)
    model = model.to(device, _half(device)).eval()
    side = 16 if tiny else 64
    latent = torch.randn(1, 4, side, side, device=device, dtype=_half(device))
    text = torch.randn(1, 77, 32 if tiny else 768, device=device, dtype=_half(device))
    time = torch.tensor(10, device=device)
    return Case(model, lambda target: target(latent, time, text).sample.float().norm(), device=device.type)


@case("dit", "diffusers")
def dit(device: torch.device, tiny: bool) -> Case:
    _declare()
    from diffusers import DiTTransformer2DModel

    build: Any = DiTTransformer2DModel
    model = build(num_attention_heads=2 if tiny else 12, attention_head_dim=16 if tiny else 64,
                  num_layers=4 if tiny else 24, sample_size=8 if tiny else 32).to(device, _half(device)).eval()
    side = 8 if tiny else 32
    latent = torch.randn(2, 4, side, side, device=device, dtype=_half(device))
    time = torch.tensor([10, 20], device=device)
    labels = torch.tensor([1, 2], device=device)
    return Case(model, lambda target: target(latent, timestep=time, class_labels=labels).sample.float().norm(),
                device=device.type)


def _llama(layers: int, training: bool) -> Builder:
    """The model of `benchmarks.first_call`."""
    def build(device: torch.device, tiny: bool) -> Case:
        from benchmarks.gpu_models import Llama, LlamaSizes

        width, length = (64, 32) if tiny else (1024, 512)
        sizes = LlamaSizes(dim=width, layers=layers, heads=max(width // 64, 4), kv_heads=max(width // 128, 2),
                           hidden=width * 11 // 4, vocab=256 if tiny else 32000, length=length)
        model = Llama(sizes).to(device, _half(device))
        tokens = torch.randint(0, sizes.vocab, (4, length), device=device)
        positions = torch.arange(length, device=device)
        return Case(model, lambda target: target(tokens, positions).float().square().mean(), training=training,
                    device=device.type)
    return build


for _layers in (8, 32, 64):
    case(f"llama-{_layers}", "torch")(_llama(_layers, False))
case("llama-32-train", "torch", training=True)(_llama(32, True))
