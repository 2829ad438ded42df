"""Tell AOTAutograd which inputs stay where they are.   a graph  ->  its parameters and buffers marked as static

A compiler that records CUDA graphs copies every other input into a place of its own at each call. The marks are
those that torch's compilers look for; Inductor itself checks that a static input still has its address. Other tensors
that stay were marked when the graph was made (`emit/residual/graph_inputs.py`).
"""

from __future__ import annotations

import itertools

import torch
from torch._guards import CompileId

from stator.shapes.declare import ADDRESS_MARK
from stator.shapes.environment import NamedSource
from stator.source import Key, Source

_numbers = itertools.count()
_MEMBER_DICTS = frozenset({"_parameters", "_buffers"})


def mark_static_inputs(gm: torch.fx.GraphModule) -> None:
    """Put the metadata on the graph and its placeholders."""
    gm.meta["dynamo_compile_id"] = CompileId(frame_id=next(_numbers), frame_compile_id=0)
    gm._param_name_to_source = {}  # the graph module holds no parameters of its own
    for node in gm.graph.find_nodes(op="placeholder"):
        source = node.meta.get("source")
        node._dynamo_source = None if source is None else NamedSource(source)
        if source is not None and is_member_of_module(source):
            node.meta["tensor_dict"] = {ADDRESS_MARK: "unguarded"}


def is_member_of_module(source: Source) -> bool:
    """Whether a value was read from the parameters or the buffers of an nn.Module."""
    return isinstance(source, Key) and isinstance(source.base, Key) and source.base.key in _MEMBER_DICTS
