"""Take a piece out of a graph.   nodes from one cut to the next  ->  a graph module with inputs and outputs of its own

In: the nodes of a piece.  Out: what it needs from outside, what is needed of it, its key and its graph module.

A gradient is a sum, and sums of floats depend on their order.  Autograd adds the gradients of a value in the reverse
order of its uses.  A piece that uses a value of an earlier piece several times would hand over their sum, though others
use the value later: it gets the value as one input for each use, the last use first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from stator.backends.graph_key import Key, stretch_key
from stator.backends.regions.flow import Flow, Whole
from stator.backends.regions.probes import Probes, fresh_fake
from stator.graph.analysis.mutation import given_nodes
from stator.graph.fx.graph_modules import InnerGraphModule
from stator.shapes.symbolic_values import SYMBOLIC


@dataclass
class Piece:
    """Nodes between two cuts."""

    start: int
    stop: int
    nodes: list[fx.Node]
    inputs: list[fx.Node] = field(default_factory=list)  # one that is used apart stands here once for each use
    outputs: list[fx.Node] = field(default_factory=list)
    apart: set[fx.Node] = field(default_factory=set)
    key: Key = None
    name: str = ""  # of the call, where the user has named it
    function: Any = None  # compiled, as AOTAutograd returns it
    direct: Any = None  # its passes alone, see `direct_calls`


def find_ends(flow: Flow, piece: Piece, probes: Probes) -> None:
    """The inputs and outputs of a piece."""
    uses: dict[fx.Node, list[fx.Node]] = {}
    own = set(piece.nodes)
    for node in piece.nodes:
        if flow.last_use.get(node, -1) >= piece.stop:
            piece.outputs.append(node)
        for each in given_nodes(node):
            if each not in own and each.op != "get_attr":
                uses.setdefault(each, []).append(node)
    for given, users in uses.items():
        if flow.last_use[given] >= piece.stop and wants_grad(flow.value(given)):
            if any(probes.gradients(user, given) > users.count(user) for user in users):
                raise Whole(f"{given.name} has a gradient that is added up in several pieces")
            if len(users) > 1:
                piece.apart.add(given)
        piece.inputs += [given] * (len(users) if given in piece.apart else 1)
    piece.inputs += symbols_needed(flow, piece.inputs)


def wants_grad(value: object) -> bool:
    with torch._C.DisableTorchFunction():
        return isinstance(value, torch.Tensor) and value.requires_grad


def symbols_needed(flow: Flow, inputs: list[fx.Node]) -> list[fx.Node]:
    """Numbers that sizes of the inputs are made of, where no input has one as its size."""
    plain: set[Any] = set()
    needed: set[Any] = set()
    for node in inputs:
        value = flow.value(node)
        numbers = [value]
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunction():
                numbers = [*value.shape, *value.stride(), value.storage_offset()]
        for size in numbers:
            if type(size) in SYMBOLIC:
                expression = size.node.expr
                needed |= expression.free_symbols
                if expression.is_Symbol:
                    plain.add(expression)
    return [flow.symbol_node(symbol) for symbol in sorted(needed - plain, key=str)]


def key_of(flow: Flow, piece: Piece) -> Key:
    values = [flow.value(node) for node in piece.inputs]
    apart = tuple([number for number, node in enumerate(piece.inputs) if node in piece.apart])
    known = frozenset(flow.states[piece.start].items())
    return stretch_key(flow.contents, piece.nodes, piece.inputs, values, piece.outputs), apart, known


def module_of(flow: Flow, piece: Piece, mode: FakeTensorMode) -> tuple[fx.GraphModule, list[Any]]:
    """The piece as a graph module, and fake inputs for it."""
    graph = fx.Graph()
    known: dict[fx.Node, list[fx.Node]] = {}
    values = []
    for node in piece.inputs:
        value = flow.value(node)
        if type(value) is FakeTensor and (node.op != "placeholder" or node in piece.apart):
            value = fresh_fake(value, mode)
        count = len(known.get(node, ()))
        made = graph.placeholder(f"{node.name}_use_{count}" if count else node.name)
        made.meta = {**node.meta, "example_value": value} if node.op == "placeholder" else {"example_value": value}
        values.append(value)
        known.setdefault(node, []).append(made)

    def copied(node: fx.Node) -> fx.Node:
        if node not in known:  # an inner graph, which every piece names itself
            known[node] = [graph.node_copy(node)]
        return known[node].pop() if node in piece.apart else known[node][0]

    for node in piece.nodes:
        for each in node.all_input_nodes:
            if each.op == "get_attr":
                copied(each)
        known[node] = [graph.node_copy(node, copied)]
    graph.output(tuple([known[node][0] for node in piece.outputs]))
    return InnerGraphModule(flow.gm, graph), values
