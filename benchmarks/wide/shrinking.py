"""Small configurations.   BertConfig()  ->  the same with two layers, 64 wide, 4 heads, 384 tokens

In: a configuration object of transformers with its default values.  Out: a new one of the same class in which every
integer whose name says what it is has been made small, sub-configurations too.
"""

from __future__ import annotations

import re
from typing import Any

_CAPS: tuple[tuple[re.Pattern[str], int], ...] = tuple((re.compile(pattern), cap) for pattern, cap in (
    (r"(^|_)(layers?|depth|num_blocks|n_blocks|stages)$|_layers_|^n_layers?$|layers$", 2),
    (r"vocab_size|codebook_size", 384),
    (r"position_embeddings|n_positions|max_seq|seq_length|max_length|target_positions", 512),
    (r"source_positions", 64),
    (r"(num|n)_(local_|routed_)?experts$|moe_num_experts", 4),
    (r"experts_per_tok|top_?k", 2),
    (r"num_queries|query_tokens|num_latents", 16),
    (r"(key_value|kv)_heads$", 2),
    (r"heads?$", 4),
    (r"head_dim$|head_size$|^d_kv$", 16),
    (r"lora_rank", 32),
    (r"intermediate_size|ffn|d_ff$|n_inner|mlp_dim|feedforward", 128),
    (r"hidden_size|d_model|n_embd|embed_dim|^dim$|hidden_dim|width|projection_dim", 64),
    (r"image_size|img_size", 64),
))
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


def is_config(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def shrink(config: Any, deep: bool = True) -> Any:
    """The small configuration; with `deep` False only the number of layers and tokens changes."""
    changes: dict[str, Any] = {}
    values = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    kinds = next((list(dict.fromkeys(values[n])) for n in ("layer_types", "layers_block_type")
                  if isinstance(values.get(n), (list, tuple)) and values[n]), None)
    layers = next((values[n] for n in ("num_hidden_layers", "n_layer", "num_layers") if type(values.get(n)) is int), 0)
    for name, value in values.items():
        if is_config(value):
            changes[name] = shrink(value, deep)
        elif type(value) is int:
            cap = next((cap for pattern, cap in _CAPS if pattern.search(name)), None)
            if cap is not None and (deep or cap in (2, 384)) and not name.endswith("_id"):
                changes[name] = min(value, cap)
        elif name == "depths" and isinstance(value, (list, tuple)):
            changes[name] = [1] * len(value)
        elif isinstance(value, (list, tuple)) and layers > 2 and len(value) == layers:
            changes[name] = None  # derived from the number of layers: the class makes it anew
    if kinds is not None:
        count = max(2, len(kinds))
        changes.update({n: (kinds * 2)[:count] for n in ("layer_types", "layers_block_type") if n in values})
        changes.update({n: count for n in ("num_hidden_layers", "n_layer", "num_layers") if n in values})
    if values.get("pad_token_id", 0) is None:
        changes["pad_token_id"] = 0
    vocabulary = changes.get("vocab_size")
    for name, value in values.items():
        if vocabulary and name.endswith(("_token_id", "_token_index")) and type(value) is int and value >= vocabulary:
            changes[name] = _TOKENS.get(name, vocabulary - 1 - len([n for n in changes if n.endswith("token_id")]))
    return type(config)(**{name: value for name, value in changes.items() if value is not None})
