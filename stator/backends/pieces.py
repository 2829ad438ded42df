"""Compile a graph in pieces.   a graph with seams  ->  compiled pieces, and between them what only autograd can do

In: a graph that makes Parameters, or calls modules with backward hooks (see graph/seams).  Out: a function that runs
the compiled pieces and the seams in their order.  Each piece has a forward and a backward of its own, and autograd
joins them at the seams, as it does with the operators of an eager program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_arg

from stator.graph.histories import memory_of, memory_written
from stator.graph.seams import is_seam

Compile = Callable[[fx.GraphModule, list[Any], bool], Callable[..., Any]]


class InOnePiece(Exception):
    """The graph cannot be cut where it would have to be."""


@dataclass
class Piece:
    """Nodes between two seams, what they need from outside, and what is needed of them."""

    nodes: list[fx.Node] = field(default_factory=list)
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    grad_enabled: bool = True
    function: Any = None


def compile_pieces(gm: fx.GraphModule, example_inputs: Sequence[Any], grad_enabled: bool, compile_piece: Compile
                   ) -> Callable[..., Any]:
    """`compile_piece` is called with each piece, its example inputs and the grad mode where it begins."""
    examples = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True))
    steps = cut(gm.graph, grad_enabled)
    for step in steps:
        if type(step) is Piece:
            given = [examples.get(node, node.meta.get("example_value")) for node in step.inputs]
            require_apart(step, given)
            step.function = (step, given)
    for step in steps:
        if type(step) is Piece:
            step.function = compile_piece(module_of(gm, step), step.function[1], step.grad_enabled)
    return runner(gm, steps)


def cut(graph: fx.Graph, grad_enabled: bool) -> list[Any]:
    """Pieces and seams in order."""
    for node in list(graph.nodes):  # parts of a result stay with it: what is handed on are tensors
        if node.target is operator.getitem and type(node.args[0]) is fx.Node and type(node.args[1]) is int \
                and type(node.args[0].meta.get("example_value")) in (tuple, list):
            node.args[0].append(node)
    steps: list[Any] = []
    place: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if is_seam(node) or node.target is operator.getitem and is_seam(node.args[0]):
            if node.meta.get("unbacked_bindings"):
                raise InOnePiece("a number that only a seam knows")
            steps.append(node)
            if node.target is torch._C._set_grad_enabled:
                grad_enabled = node.args[0]
        else:
            if not steps or type(steps[-1]) is not Piece:
                steps.append(Piece(grad_enabled=grad_enabled))
            steps[-1].nodes.append(node)
            if node.target is torch._C._set_grad_enabled:
                grad_enabled = node.args[0]
            elif not node.users and node.op == "call_function" and "autocast" in str(node.target):
                raise InOnePiece("a seam beside autocast")
        place[node] = len(steps) - 1
    for number, step in enumerate(steps):
        if type(step) is Piece:
            _find_ends(step, number, place)
    return steps


def _find_ends(step: Piece, number: int, place: dict[fx.Node, int]) -> None:
    for node in step.nodes:
        if node.meta.get("unbacked_bindings"):
            raise InOnePiece("a seam beside numbers that only the graph knows")
        for each in node.all_input_nodes:
            if each.op != "get_attr" and place.get(each) != number and each not in step.inputs:
                step.inputs.append(each)
        if any(user.op == "output" or place[user] != number for user in node.users):
            if type(node.meta.get("example_value")) not in (FakeTensor, torch.SymInt):
                raise InOnePiece(f"a seam behind {node.name}, which is no tensor")
            step.outputs.append(node)


def require_apart(step: Piece, given: list[Any]) -> None:
    """What a piece writes to must be one of its inputs under one name."""
    if any(value is None for value in given):
        raise InOnePiece("a seam before something that is no tensor")
    written = {memory for node in step.nodes for memory in memory_written(node)}
    changed = [value for value in given if memory_of(value) in written]
    if len({memory_of(value) for value in changed}) != len(changed):
        raise InOnePiece("a seam before a write to memory with several names")
    with torch._C.DisableTorchFunction():
        if any(value.requires_grad and not value.is_leaf for value in changed):
            raise InOnePiece("a seam before a write to what has a history")


def module_of(gm: fx.GraphModule, step: Piece) -> fx.GraphModule:
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}

    def copied(node: fx.Node) -> fx.Node:
        if node not in known:  # an inner graph, which every piece names itself
            known[node] = graph.node_copy(node)
        return known[node]

    for node in step.inputs:
        known[node] = graph.placeholder(node.name)
        known[node].meta = dict(node.meta)
    for node in step.nodes:
        for each in node.all_input_nodes:
            copied(each)
        known[node] = graph.node_copy(node, copied)
    graph.output(tuple(known[node] for node in step.outputs))
    return fx.GraphModule(gm, graph)


def runner(gm: fx.GraphModule, steps: list[Any]) -> Callable[..., Any]:
    graph = gm.graph
    placeholders = graph.find_nodes(op="placeholder")
    held = {node: getattr(gm, node.target) for node in graph.find_nodes(op="get_attr") if "." not in node.target}
    results = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]

    def run(*args: Any) -> Any:
        values = {**held, **dict(zip(placeholders, args, strict=True))}
        for step in steps:
            if type(step) is Piece:
                out = step.function(*[values[node] for node in step.inputs])
                values.update(zip(step.outputs, out, strict=True))
            else:
                given, named = map_arg((step.args, step.kwargs), values.__getitem__)
                values[step] = step.target(*given, **named) if step.op == "call_function" else \
                    getattr(given[0], step.target)(*given[1:], **named)
        return map_arg(results, values.__getitem__)

    return run
