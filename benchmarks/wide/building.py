"""Build one model of the catalogue.   "hf:BertModel"  ->  the model in eval mode, and keyword inputs that it accepts

Nothing is downloaded. Weights are random; inputs are guessed from the signature of `forward`, and the first guess
that runs in eager is taken. A model that cannot be built, or for which no guess runs, raises NotBuilt.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.wide.shrinking import shrink

LIMIT = 30_000_000  # parameters
Inputs = dict[str, Any]


class NotBuilt(Exception):
    """No small model, or no inputs for it."""


def build(name: str) -> tuple[torch.nn.Module, Inputs]:
    library, _, model = name.partition(":")
    torch.manual_seed(0)
    return _BUILDERS[library](model)


def _runs(model: torch.nn.Module, inputs: Inputs) -> Exception | None:
    try:
        with torch.no_grad():
            model(**copy.deepcopy(inputs))
    except Exception as error:
        return error
    return None


# ---------------------------------------------------------------------- transformers


def _transformers(name: str) -> tuple[torch.nn.Module, Inputs]:
    library = importlib.import_module("transformers")
    cls = getattr(library, name)
    why: Exception | None = None
    for deep in (True, False):
        try:
            config = shrink(cls.config_class(), deep)
            with torch.device("meta"):
                size = sum(p.numel() for p in cls(copy.deepcopy(config)).parameters())
            if size > LIMIT:
                raise NotBuilt(f"{size} parameters")
            model = cls(config).eval().float()
        except Exception as error:
            why = why or error
            continue
        for inputs in itertools.islice(_guesses(model, model.config), 16):
            failure = _runs(model, inputs)
            if failure is None:
                return model, inputs
            why = why or failure
    raise NotBuilt(f"{type(why).__name__}: {why}")


def _part(config: Any, *names: str) -> Any:
    return next((found for found in (getattr(config, n, None) for n in names) if hasattr(found, "model_type")), config)


def _number(config: Any, *names: str, default: int) -> int:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return default


def _guesses(model: torch.nn.Module, config: Any) -> Iterator[Inputs]:
    wanted = inspect.signature(model.forward).parameters
    text = _part(config, "text_config", "decoder", "thinker_config")
    vocabulary = _number(text, "vocab_size", default=100)
    ids = torch.randint(3, max(4, vocabulary - 40), (2, 16))
    texts: list[Inputs] = [{}]
    if "input_ids" in wanted:
        texts = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}, {"input_ids": ids}]
        if "attention_mask" not in wanted:
            texts.pop(0)
        if "decoder_input_ids" in wanted:
            texts = [{**each, "decoder_input_ids": ids[:, :8]} for each in texts] + texts
        if "bbox" in wanted:
            texts = [{**each, "bbox": torch.randint(0, 50, (2, 16, 4)).sort(-1).values} for each in texts]
    others: list[Inputs] = []
    if "pixel_values" in wanted:
        vision = _part(config, "vision_config", "backbone_config", "encoder")
        channels, side = _number(vision, "num_channels", "in_channels", "in_chans", default=3), \
            _number(vision, "image_size", "img_size", default=64)
        frames = _number(vision, "num_frames", default=0)
        sizes = dict.fromkeys((side, 64, 224))
        if frames:
            others += [{"pixel_values": torch.randn(2, frames, channels, s, s)} for s in sizes]
        others += [{"pixel_values": torch.randn(2, channels, s, s)} for s in sizes]
    for key in ("input_features", "input_values"):
        if key in wanted:
            audio = _part(config, "audio_config", "encoder_config", "encoder")
            bins = _number(audio, "num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", default=80)
            length = 2 * _number(audio, "max_source_positions", default=32)
            shapes = [(2, bins, length), (2, 64, bins), (2, 4000), (2, 1, 4000)]
            others += [{key: torch.randn(*shape)} for shape in (shapes if key == "input_features" else shapes[::-1])]
    for key in ("past_values", "hidden_states", "inputs_embeds", "inputs"):
        if key in wanted and "input_ids" not in wanted:
            width = _number(config, "hidden_size", "d_model", default=64)
            others += [{key: torch.randn(2, 16, width)}, {key: torch.randn(2, 512)}]
    for other in others or [{}]:
        for each in texts:
            if other or each:
                yield {**other, **each}
    yield from (each for each in texts if each)


# ---------------------------------------------------------------------- the other libraries


def _timm(name: str) -> tuple[torch.nn.Module, Inputs]:
    model = importlib.import_module("timm").create_model(name, pretrained=False).eval()
    if sum(p.numel() for p in model.parameters()) > LIMIT:
        raise NotBuilt("too large")
    inputs = {"x": torch.randn(1, *model.default_cfg.get("input_size", (3, 224, 224)))}
    failure = _runs(model, inputs)
    if failure is not None:
        raise NotBuilt(str(failure))
    return model, inputs


def _torchvision(name: str) -> tuple[torch.nn.Module, Inputs]:
    library = importlib.import_module("torchvision.models")
    model = library.get_model(name, weights=None).eval()
    if sum(p.numel() for p in model.parameters()) > LIMIT:
        raise NotBuilt("too large")
    for side in (64, 224, 299):
        inputs = {"x": torch.randn(1, 3, side, side)}
        if _runs(model, inputs) is None:
            return model, inputs
    raise NotBuilt("no input runs")


def _geometric(name: str) -> tuple[torch.nn.Module, Inputs]:
    cls = getattr(importlib.import_module("torch_geometric.nn.conv"), name)
    nodes, edges, width = 12, 40, 16
    graph = {"x": torch.randn(nodes, width), "edge_index": torch.randint(0, nodes, (2, edges))}
    parameters = inspect.signature(cls.__init__).parameters
    options: Inputs = {"in_channels": width, "out_channels": width, "channels": width, "dim": 3, "kernel_size": 2,
                       "num_relations": 3, "heads": 2, "num_layers": 2, "K": 2, "edge_dim": 6, "alpha": 0.1,
                       "nn": torch.nn.Linear(2 * width, width), "mlp": torch.nn.Linear(2 * width, width)}
    needed = {n: options[n] for n, p in parameters.items() if n in options and p.default is inspect.Parameter.empty}
    wanted = inspect.signature(cls.forward).parameters
    extras: Inputs = {"edge_type": torch.randint(0, 3, (edges,)), "edge_attr": torch.rand(edges, 3),
                      "pos": torch.randn(nodes, 3), "edge_weight": torch.rand(edges)}
    why: Exception | None = None
    try:
        model = cls(**needed).eval()
    except Exception as error:
        raise NotBuilt(str(error)) from error
    required = {n: v for n, v in extras.items() if n in wanted and wanted[n].default is inspect.Parameter.empty}
    for more in ({}, required, {n: v for n, v in extras.items() if n in wanted}):
        inputs = {n: v for n, v in {**graph, **more}.items() if n in wanted}
        failure = _runs(model, inputs)
        if failure is None:
            return model, inputs
        why = why or failure
    raise NotBuilt(str(why))


_BUILDERS = {"hf": _transformers, "timm": _timm, "tv": _torchvision, "pyg": _geometric}
