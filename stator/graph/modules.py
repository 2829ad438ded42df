"""Graph modules.   fx.Graph, the inner graphs it names  ->  fx.GraphModule, which leaves nothing in torch's caches"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Mapping

import torch
from torch import fx


def make_graph_module(graph: fx.Graph, inner: Mapping[str, fx.GraphModule]) -> fx.GraphModule:
    root = torch.nn.Module()
    for name, module in inner.items():
        root.add_module(name, module)
    module = fx.GraphModule(root, graph)
    weakref.finalize(module, _forget_source, module.forward.__code__.co_filename)
    return module


def _forget_source(filename: str) -> None:
    """torch.fx keeps the text of every graph for tracebacks, for ever."""
    linecache.cache.pop(filename, None)
    fx.graph_module._loader.eval_cache.pop(filename, None)
