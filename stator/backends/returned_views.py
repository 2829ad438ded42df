"""Take returned views outside the compiled graph.   return h.chunk(2)  ->  the graph returns h, and chunk runs after it

AOTAutograd would return tensors of its own for views of an operation with several, and for views made without grad
mode: they share no memory with a base that was written to, and autograd lets them be changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.autograd.grad_mode import _enter_inference_mode
from torch.fx.node import map_arg

from stator.graph.analysis.autograd_boundaries import wants_grad
from stator.graph.analysis.mutation import changes_views, storage_of, tensors_in, writes, written_storages
from stator.graph.fx.graph_modules import InnerGraphModule
from stator.graph.fx.nodes import run_target

Function = Callable[..., Any]


class WrittenAfterwards(Exception):
    """The memory of such views is written to after they are made: autograd alone knows what becomes of them."""


@dataclass
class Chain:
    """A returned view: the nodes that make it from its base, the first one first."""

    base: fx.Node
    nodes: list[fx.Node] = field(default_factory=list)


def take_views_out(gm: fx.GraphModule, grad_enabled: bool) -> tuple[fx.GraphModule, Callable[[Function], Function]]:
    """A graph that returns bases in place of views, and what to make of the function compiled from it."""
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    returned = [node for node in output.all_input_nodes if wants_grad(node)]
    chains = {node: chain for node in returned if (chain := chain_of(node)).nodes}
    if not chains:
        return gm, unchanged
    modes = grad_modes(gm.graph, grad_enabled)
    chains = {node: chain for node, chain in chains.items()
              if any(not modes[each] or isinstance(each.meta.get("example_value"), (tuple, list))
                     for each in chain.nodes)}
    if not chains or any(node.target is _enter_inference_mode or writes(node) and changes_views(node)
                         for node in gm.graph.nodes):
        return gm, unchanged
    refuse_later_writes(gm.graph, chains.values())
    steps = list(dict.fromkeys(each for chain in chains.values() for each in chain.nodes))
    steps.sort(key={node: place for place, node in enumerate(gm.graph.nodes)}.__getitem__)
    results = output.args[0]
    kept: list[fx.Node] = []  # what the compiled graph returns
    map_arg(results, lambda node: None if node in chains else kept.append(node))
    for step in steps:
        kept += [node for node in step.all_input_nodes if node not in steps]
    kept = [node for node in dict.fromkeys(kept) if node.op != "placeholder"]
    inputs = gm.graph.find_nodes(op="placeholder")
    plan = Views(inputs, kept, [(node, node.op, node.target, node.args, node.kwargs, modes[node]) for node in steps],
                 results)
    return without_views(gm, steps, kept), plan.after


def unchanged(compiled: Function) -> Function:
    return compiled


def without_views(gm: fx.GraphModule, steps: list[fx.Node], kept: list[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(gm.graph, copies)
    graph.output(tuple([copies[node] for node in kept]))
    for node in reversed(steps):
        if not copies[node].users:
            graph.erase_node(copies[node])
    module = InnerGraphModule(gm, graph)
    module.meta.update(gm.meta)
    return module


def chain_of(node: fx.Node) -> Chain:
    chain = Chain(node)
    while chain.base.op != "placeholder" and not writes(chain.base):
        storages = {storage_of(each) for each in tensors_in(chain.base.meta.get("example_value"))}
        parents = [each for each in chain.base.all_input_nodes
                   if storages & {storage_of(value) for value in tensors_in(each.meta.get("example_value"))}]
        if len(storages) != 1 or len(parents) != 1:
            break
        chain.nodes.insert(0, chain.base)
        chain.base = parents[0]
    return chain


def grad_modes(graph: fx.Graph, enabled: bool) -> dict[fx.Node, bool]:
    found = {}
    for node in graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            enabled = node.args[0]
        found[node] = enabled
    return found


def refuse_later_writes(graph: fx.Graph, chains: Any) -> None:
    begun = {}
    for chain in chains:
        begun[chain.nodes[0]] = storage_of(chain.base.meta.get("example_value"))
    storages: set[int] = set()
    for node in graph.nodes:
        if not storages.isdisjoint(written_storages(node)):
            raise WrittenAfterwards
        if node in begun:
            storages.add(begun[node])


@dataclass
class Views:
    """Views to make behind the compiled graph."""

    inputs: list[fx.Node]
    kept: list[fx.Node]
    steps: list[Any]
    results: Any

    def after(self, compiled: Function) -> Function:
        used = {node for _, _, _, args, kwargs, _ in self.steps for node in _nodes((args, kwargs))}
        used.update(_nodes(self.results))
        places = [(place, node) for place, node in enumerate(self.inputs) if node in used]

        def run(*args: object) -> Any:
            out = compiled(*args)
            values = {node: args[place] for place, node in places}
            values.update(zip(self.kept, out, strict=True))
            before = torch.is_grad_enabled()
            try:
                for node, op, target, given, named, grad in self.steps:
                    torch._C._set_grad_enabled(grad)
                    values[node] = run_target(op, target, *map_arg((given, named), values.__getitem__))
            finally:
                torch._C._set_grad_enabled(before)
            return map_arg(self.results, values.__getitem__)

        return run


def _nodes(values: object) -> list[fx.Node]:
    found: list[fx.Node] = []
    map_arg(values, found.append)
    return found
