"""The model of the demo where transformers is installed: a Llama of random weights, four layers, small widths."""

from __future__ import annotations

import importlib
import importlib.util
import os

import torch

LAYERS = 4


def available() -> bool:
    """Whether transformers is there and its Llama can be imported (a torchvision of another torch prevents that)."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec("transformers") is None:
        return False
    try:
        return importlib.import_module("transformers").LlamaForCausalLM is not None
    except (ImportError, RuntimeError):
        return False


def build() -> tuple[torch.nn.Module, torch.Tensor]:
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=384, use_cache=False)
    return transformers.LlamaForCausalLM(config).eval(), torch.randint(0, 384, (2, 16))
