"""Real models as workloads: random weights, small widths, real depths.  Registered where their libraries are there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.workloads import Program, workload
from tests.models.torchvision_ops import declare_missing

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def llama(layers: int) -> Program:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4,
                         num_key_value_heads=2, vocab_size=384, use_cache=False)
    return LlamaForCausalLM(config).eval(), (torch.randint(0, 384, (2, 16)),)


def bert() -> Program:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=12, num_attention_heads=4,
                        vocab_size=384)
    return BertModel(config).eval(), (torch.randint(0, 384, (2, 16)),)


def vit() -> Program:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=12, num_attention_heads=4,
                       image_size=32, patch_size=8)
    return ViTModel(config).eval(), (torch.randn(2, 3, 32, 32),)


def unet() -> Program:
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    build: Any = UNet2DConditionModel  # a Module, which mypy does not see: torch is not followed
    model = build(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
                                 block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=32,
                                 attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")).eval()
    return model, (torch.randn(2, 4, 16, 16), torch.tensor(10), torch.randn(2, 5, 32))


def register_models() -> None:
    builders: dict[str, tuple[str, Callable[[], Program]]] = {
        f"Llama, {layers} layers": ("transformers", partial(llama, layers)) for layers in (4, 16, 32, 64)}
    builders["BERT, 12 layers"] = ("transformers", bert)
    builders["ViT, 12 layers"] = ("transformers", vit)
    builders["UNet2DCondition"] = ("diffusers", unet)
    for name, (library, build) in builders.items():
        if importlib.util.find_spec(library) is not None:
            workload(name)(build)


declare_missing()
register_models()
