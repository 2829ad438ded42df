"""Small random models of real libraries.   "bert"  ->  the model in eval mode, and inputs for two different calls

A family is a function that builds; it is found by its name and skipped where its library is not installed.
Nothing is downloaded: configurations are written here, weights are random, numbers are the same each time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

Inputs = dict[str, Any]


@dataclass
class Built:
    """A model and the keyword inputs of two calls whose shapes agree."""

    model: nn.Module
    first: Inputs
    second: Inputs


@dataclass(frozen=True)
class Family:
    """How to build one model, and the library it needs."""

    name: str
    library: str
    build: Callable[[Any], Built]
    slow: bool

    def make(self) -> Built:
        try:
            library = importlib.import_module(self.library)
        except ImportError as error:
            pytest.skip(f"{self.library} cannot be imported: {error}")
        torch.manual_seed(0)
        built = self.build(library)
        built.model.eval()
        return built


FAMILIES: dict[str, Family] = {}


def family(library: str, slow: bool = True) -> Callable[[Callable[[Any], Built]], Callable[[Any], Built]]:
    def register(build: Callable[[Any], Built]) -> Callable[[Any], Built]:
        name = build.__name__
        FAMILIES[name] = Family(name, library, build, slow)
        return build
    return register


VOCABULARY = 96
WIDTHS: Inputs = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                      num_attention_heads=4, max_position_embeddings=64)
ENCODER_DECODER: Inputs = dict(
    vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48)
SPECIAL_TOKENS: Inputs = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


def tokens(length: int = 8, batch: int = 2) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def two(model: nn.Module, inputs: Callable[[], Inputs]) -> Built:
    return Built(model, inputs(), inputs())


# ---------------------------------------------------------------------- transformers: text


def llama_of(library: Any, **options: Any) -> Any:
    config = library.LlamaConfig(**WIDTHS, **SPECIAL_TOKENS, num_key_value_heads=2, **options)
    return library.LlamaForCausalLM(config).eval()


@family("transformers", slow=False)
def llama(library: Any) -> Built:
    return two(llama_of(library), lambda: {"input_ids": tokens(), "use_cache": False})


@family("transformers")
def llama_with_cache(library: Any) -> Built:
    return two(llama_of(library), lambda: {"input_ids": tokens(), "use_cache": True})


@family("transformers")
def llama_padded(library: Any) -> Built:
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, :3] = 0
    return two(llama_of(library), lambda: {"input_ids": tokens(), "attention_mask": mask.clone(), "use_cache": False})


@family("transformers")
def llama_eager_attention(library: Any) -> Built:
    return two(llama_of(library, attn_implementation="eager"), lambda: {"input_ids": tokens(), "use_cache": False})


@family("transformers")
def llama_with_hidden_states(library: Any) -> Built:
    return two(llama_of(library), lambda: {"input_ids": tokens(), "output_hidden_states": True})


@family("transformers")
def qwen2(library: Any) -> Built:
    config = library.Qwen2Config(**WIDTHS, **SPECIAL_TOKENS, num_key_value_heads=2)
    return two(library.Qwen2ForCausalLM(config), lambda: {"input_ids": tokens()})


@family("transformers", slow=False)
def bert(library: Any) -> Built:
    def inputs() -> Inputs:
        mask = torch.ones(2, 8, dtype=torch.long)
        mask[1, 5:] = 0
        return {"input_ids": tokens(), "attention_mask": mask, "token_type_ids": torch.zeros(2, 8, dtype=torch.long)}
    return two(library.BertModel(library.BertConfig(**WIDTHS)), inputs)


@family("transformers")
def bert_classifier(library: Any) -> Built:
    config = library.BertConfig(**WIDTHS, num_labels=3)
    return two(library.BertForSequenceClassification(config),
               lambda: {"input_ids": tokens(), "labels": torch.randint(0, 3, (2,))})


@family("transformers")
def gpt2(library: Any) -> Built:
    config = library.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, **SPECIAL_TOKENS)
    return two(library.GPT2LMHeadModel(config), lambda: {"input_ids": tokens()})


@family("transformers")
def deberta(library: Any) -> Built:
    config = library.DebertaConfig(**WIDTHS, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0)
    return two(library.DebertaModel(config), lambda: {"input_ids": tokens()})


@family("transformers")
def deberta_v2(library: Any) -> Built:
    config = library.DebertaV2Config(**WIDTHS, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0)
    return two(library.DebertaV2Model(config), lambda: {"input_ids": tokens()})


def mamba_of(library: Any, **options: Any) -> Built:
    config = library.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=8,
                                 **SPECIAL_TOKENS, **options)
    return two(library.MambaForCausalLM(config), lambda: {"input_ids": tokens()})


@family("transformers")
def mamba(library: Any) -> Built:
    """Scans associatively, over torch.vmap, when it is compiled."""
    return mamba_of(library)


@family("transformers")
def mamba_in_sequence(library: Any) -> Built:
    return mamba_of(library, use_associative_scan=False)


@family("transformers", slow=False)
def t5(library: Any) -> Built:
    config = library.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                              decoder_start_token_id=0, pad_token_id=0, eos_token_id=2)
    return two(library.T5ForConditionalGeneration(config),
               lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(6)})


@family("transformers")
def bart(library: Any) -> Built:
    config = library.BartConfig(**ENCODER_DECODER, **SPECIAL_TOKENS, max_position_embeddings=64,
                                decoder_start_token_id=2, forced_eos_token_id=2)
    return two(library.BartForConditionalGeneration(config),
               lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(6)})


# ---------------------------------------------------------------------- transformers: sound and pictures


@family("transformers")
def whisper(library: Any) -> Built:
    config = library.WhisperConfig(**ENCODER_DECODER, **SPECIAL_TOKENS, num_mel_bins=16, max_source_positions=20,
                                   max_target_positions=32, decoder_start_token_id=1, suppress_tokens=None,
                                   begin_suppress_tokens=None)
    return two(library.WhisperForConditionalGeneration(config),
               lambda: {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": tokens(6)})


VISION: Inputs = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                      patch_size=8)


@family("transformers")
def vit(library: Any) -> Built:
    return two(library.ViTModel(library.ViTConfig(**VISION)), lambda: {"pixel_values": torch.randn(2, 3, 32, 32)})


@family("transformers")
def clip(library: Any) -> Built:
    config = library.CLIPConfig(text_config={**WIDTHS, **SPECIAL_TOKENS}, vision_config=dict(VISION), projection_dim=16)

    def inputs() -> Inputs:
        ids = tokens()
        ids[:, -1] = 2
        return {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)}
    return two(library.CLIPModel(config), inputs)


# ---------------------------------------------------------------------- diffusers, torch_geometric, timm


@family("diffusers")
def unet(library: Any) -> Built:
    model = library.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=32, attention_head_dim=8,
        block_out_channels=(32, 64), norm_num_groups=8, layers_per_block=1)
    return two(model, lambda: {"sample": torch.randn(1, 4, 16, 16), "timestep": torch.randint(1, 100, (1,)),
                               "encoder_hidden_states": torch.randn(1, 4, 32)})


def _graph() -> Inputs:
    return {"x": torch.randn(12, 16), "edge_index": torch.randint(0, 12, (2, 40))}


@family("torch_geometric.nn", slow=False)
def gcn(library: Any) -> Built:
    return two(library.GCN(16, 32, num_layers=2, out_channels=4), _graph)


@family("torch_geometric.nn")
def gat(library: Any) -> Built:
    return two(library.GAT(16, 32, num_layers=2, out_channels=4), _graph)


@family("timm", slow=False)
def resnet(library: Any) -> Built:
    return two(library.create_model("resnet18", pretrained=False), lambda: {"x": torch.randn(1, 3, 64, 64)})


@family("timm")
def convnext(library: Any) -> Built:
    return two(library.create_model("convnext_atto", pretrained=False), lambda: {"x": torch.randn(1, 3, 64, 64)})


# ---------------------------------------------------------------------- torch's own


@family("torch", slow=False)
def transformer(library: Any) -> Built:
    model = nn.Transformer(32, 4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=48, batch_first=True)
    return two(model, lambda: {"src": torch.randn(2, 8, 32), "tgt": torch.randn(2, 6, 32), "tgt_is_causal": True,
                               "tgt_mask": nn.Transformer.generate_square_subsequent_mask(6)})


@family("torch", slow=False)
def lstm(library: Any) -> Built:
    model = nn.LSTM(16, 32, num_layers=2, batch_first=True, bidirectional=True)
    return two(model, lambda: {"input": torch.randn(2, 5, 16)})
