"""CUDA graphs.   a graph module  ->  AOTAutograd's graphs, recorded and replayed; the beginning of a call

A graph that cannot be recorded (it touches the CPU, or writes to its inputs) runs as it is.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import CompileContext, CompileId

from stator.backends.aot_rules import eager_streams
from stator.settings.options import Settings
from stator.shapes.environment import NamedSource
from stator.shapes.tensor_marks import ADDRESS_MARK
from stator.source import Key, Source


def compile_cuda_graphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                        settings: Settings ) -> Callable[..., Any]:
    """AOTAutograd, and torch's trees of CUDA graphs around what it makes."""
    backend: Callable[..., Any] = importlib.import_module("torch._dynamo.backends.cudagraphs").cudagraphs
    with eager_streams(gm):
        return backend(gm, list(example_inputs))


_WITH_CUDA_GRAPHS = frozenset({"reduce-overhead", "max-autotune"})


def begins_generation(settings: Settings) -> Callable[[], None] | None:
    """The call that marks a new generation: recorded CUDA graphs reuse the memory of outputs from there on."""
    return begin_generation if records_cuda_graphs(settings) else None


def records_cuda_graphs(settings: Settings) -> bool:
    if settings.backend == "cudagraphs":
        return True
    if settings.backend != "inductor":
        return False
    if settings.mode in _WITH_CUDA_GRAPHS or settings.options.get("triton.cudagraphs"):
        return True
    config: Any = importlib.import_module("torch._inductor.config")
    return bool(config.triton.cudagraphs)


_tracker: Any = None


def begin_generation() -> None:
    global _tracker
    if _tracker is None:
        _tracker = importlib.import_module("torch._dynamo.mutation_guard").GenerationTracker
    _tracker.generation += 1


graph_numbers = itertools.count()
_latest: list[CompileId | None] = [None]  # id of the capture whose graph came last
_MEMBER_DICTS = frozenset({"_parameters", "_buffers"})


def mark_static_inputs(gm: torch.fx.GraphModule) -> None:
    """Mark parameters and buffers as static inputs: CUDA graphs copy every other input at each call."""
    current = CompileContext.current_compile_id()
    new = current is None or current == _latest[0]
    gm.meta["dynamo_compile_id"] = CompileId(frame_id=next(graph_numbers), frame_compile_id=0) if new else current
    _latest[0] = current
    gm._param_name_to_source = {}  # the graph module holds no parameters of its own
    for node in gm.graph.find_nodes(op="placeholder"):
        source = node.meta.get("source")
        node._dynamo_source = None if source is None else NamedSource(source)
        if source is not None and is_member_of_module(source):
            node.meta["tensor_dict"] = {ADDRESS_MARK: "unguarded"}


def is_member_of_module(source: Source) -> bool:
    """Whether a value was read from the parameters or the buffers of an nn.Module."""
    return isinstance(source, Key) and isinstance(source.base, Key) and source.base.key in _MEMBER_DICTS
