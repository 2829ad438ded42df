"""Which models there are.   the installed libraries  ->  names such as "hf:BertModel", "timm:resnet18", "pyg:GATConv"

One model for every type that a library knows; the order is shuffled with a fixed seed, so that the first of them are
a fair sample of all.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
from collections.abc import Iterator

HEADS = ("CAUSAL_LM", "MASKED_LM", "IMAGE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM", "AUDIO_CLASSIFICATION", "CTC",
         "IMAGE_TEXT_TO_TEXT", "OBJECT_DETECTION", "SEQUENCE_CLASSIFICATION", "SPEECH_SEQ_2_SEQ", "DEPTH_ESTIMATION")


def names(libraries: list[str], seed: int = 0) -> list[str]:
    """Every model of the libraries that are installed."""
    found = [name for library in libraries if importlib.util.find_spec(_MODULES[library]) is not None
             for name in _LISTS[library]()]
    random.Random(seed).shuffle(found)
    return found


def _transformers() -> Iterator[str]:
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    seen: set[str] = set()
    for table in ("MODEL_MAPPING_NAMES", *(f"MODEL_FOR_{head}_MAPPING_NAMES" for head in HEADS)):
        for entry in getattr(auto, table, {}).values():
            name = entry if isinstance(entry, str) else entry[0]
            if name not in seen:
                seen.add(name)
                yield f"hf:{name}"


def _timm() -> Iterator[str]:
    """The first name of each of timm's model files: names sort small before large, more often than not."""
    timm = importlib.import_module("timm")
    for module in timm.list_modules():
        found = timm.list_models(module=module)
        small = [name for name in found if re.search(r"tiny|nano|atto|pico|_xxs|_xs|small|_s\d*$|18|mini", name)]
        if found:
            yield f"timm:{(small or found)[0]}"


def _torchvision() -> Iterator[str]:
    models = importlib.import_module("torchvision.models")
    return (f"tv:{name}" for name in models.list_models(module=models))


def _geometric() -> Iterator[str]:
    conv = importlib.import_module("torch_geometric.nn.conv")
    return (f"pyg:{name}" for name in conv.__all__ if name not in ("MessagePassing", "SimpleConv"))


_MODULES = {"hf": "transformers", "timm": "timm", "tv": "torchvision", "pyg": "torch_geometric"}
_LISTS = {"hf": _transformers, "timm": _timm, "tv": _torchvision, "pyg": _geometric}
LIBRARIES = tuple(_LISTS)
