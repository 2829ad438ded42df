"""Graph modules.   fx.Graph, the inner graphs it names  ->  fx.GraphModule, which leaves nothing in torch's caches"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from stator.graph.fx import straight_line
from stator.graph.fx.node_copying import Play


class PlainCall:
    """What calls a graph module, without fx's text about errors: the program may catch them; eager prints nothing."""

    def __init__(self, cls: type) -> None:
        self.cls: Any = cls

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        return super(self.cls, module).__call__(*args, **kwargs)  # type: ignore[misc]


class InnerGraphModule(fx.GraphModule):
    """A graph that an operator of another graph calls."""

    def recompile(self) -> Any:
        type(self)._wrapped_call = PlainCall(type(self))  # type: ignore[attr-defined]
        return super().recompile()


class LateGraphModule(_LazyGraphModule):
    """A graph module whose code is written when somebody asks for it."""

    __jit_unused_properties__ = [*fx.GraphModule.__jit_unused_properties__, "code"]  # a backend may script it

    def _real_recompile(self) -> Any:
        type(self)._wrapped_call = PlainCall(type(self))  # type: ignore[attr-defined]
        made = super()._real_recompile()
        weakref.finalize(self, _forget_source, type(self).forward.__code__.co_filename)
        return made


_located: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()  # whose errors are raised as they are
_plays: weakref.WeakKeyDictionary[fx.GraphModule, list[Play]] = weakref.WeakKeyDictionary()


def make_captured(graph: fx.Graph, inner: Mapping[str, fx.GraphModule], plays: list[Play]) -> fx.GraphModule:
    """The graph of a whole segment; no code yet."""
    root = torch.nn.Module()
    for name, module in inner.items():
        root.add_module(name, module)
    made = LateGraphModule(root, graph)
    _plays[made] = plays
    if inner:
        tell_sources(made)
    return made


def locate_errors(module: fx.GraphModule) -> None:
    """Keep where each node stands in the program once the graph runs."""
    _located.add(module)


def tell_sources(module: fx.GraphModule, within: tuple[tuple[str, Any], ...] = ()) -> None:
    """Say of the nodes of inner graphs which operations they are part of, as torch's matchers of patterns ask."""
    for node in module.graph.nodes:
        if "call" in node.op:
            stack = (*within, (node.name, node.target))
            node.meta["source_fn_stack"] = list(stack)
            for each in node.all_input_nodes:
                part = getattr(module, each.target) if each.op == "get_attr" else None
                if isinstance(part, fx.GraphModule):
                    tell_sources(part, stack)


def straight_function(module: fx.GraphModule, located: bool = False) -> Any:
    """What runs the graph as it is; `located`: tracebacks lead from its lines to its nodes."""
    try:
        return straight_line.function(module.graph, _plays.get(module, []), located or module in _located)
    except straight_line.NotStraight:
        _LazyGraphModule.force_recompile(module)
        return module.forward


def write_code(module: fx.GraphModule) -> None:
    """FX's own code, for whoever calls or reads it."""
    _LazyGraphModule.force_recompile(module)


def make_graph_module(graph: fx.Graph, inner: Mapping[str, fx.GraphModule]) -> fx.GraphModule:
    root = torch.nn.Module()
    for name, module in inner.items():
        root.add_module(name, module)
    module = InnerGraphModule(root, graph)
    weakref.finalize(module, _forget_source, module.forward.__code__.co_filename)
    return module


def _forget_source(filename: str) -> None:
    """torch.fx keeps the text of every graph for tracebacks, for ever."""
    linecache.cache.pop(filename, None)
    fx.graph_module._loader.eval_cache.pop(filename, None)
