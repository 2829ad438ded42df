"""Which nodes nobody needs.   t[i] with a result that is dropped  ->  one more output, so that its error is met

A dead node that may raise becomes an output of a graph that is compiled; operators without a result are kept.  Other
dead nodes are left to the compiler.  `emit/residual/residual.py` erases unused inputs.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import has_side_effect

from stator.graph.analysis.may_fail import CALLS, Memory, makes_new_memory, node_may_fail
from stator.graph.analysis.mutation import operator_name, writes, written_by


def errors_to_meet(graph: fx.Graph, outputs: Iterable[object]) -> tuple[fx.Node, ...]:
    """Further outputs: the results of dead nodes that may fail, without their histories."""
    live = _live(graph, {node for node in outputs if isinstance(node, fx.Node)})
    memory = Memory(frozenset())
    failing = [node for node in graph.nodes if node.op in CALLS and node not in live and node_may_fail(node, memory)]
    results = dict.fromkeys(result for node in failing for result in _results(graph, node))
    return tuple(_without_history(graph, result) for result in results if result not in live)


def keep_checks(graph: fx.Graph) -> None:
    """Have FX keep operators without a result (`_assert_async`): they only check."""
    for node in graph.nodes:
        if node.op == "call_function" and not node.users and not writes(node):
            packet = getattr(torch.ops.aten, operator_name(node.target) or "-", None)
            for name in packet.overloads() if isinstance(packet, OpOverloadPacket) else ():
                if not (overload := getattr(packet, name))._schema.returns:
                    has_side_effect(overload)


def _results(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a node makes: itself, one of its parts, or what it writes to; none but plain tensors."""
    if writes(node):
        return [each for each in written_by(node) if _is_plain(each.meta.get("example_value"))]
    result = node.meta.get("example_value")
    if not isinstance(result, (tuple, list)):
        return [node] if _is_plain(result) else []
    place = next((place for place, part in enumerate(result) if _is_plain(part)), None)
    if place is None:
        return []
    with graph.inserting_after(node):
        part = graph.call_function(operator.getitem, (node, place))
    part.meta.update(node.meta, example_value=result[place])
    return [part]


def _is_plain(value: Any) -> bool:
    return type(value) is FakeTensor and value.layout is torch.strided


def _without_history(graph: fx.Graph, node: fx.Node) -> fx.Node:
    result = node.meta["example_value"]
    if not result.requires_grad:
        return node
    with graph.inserting_after(node):
        detached = graph.call_method("detach", (node,))
    detached.meta.update(node.meta, example_value=result.detach())
    return detached


def _live(graph: fx.Graph, outputs: set[fx.Node]) -> set[fx.Node]:
    """The nodes that the outputs are made of, or what the graph writes to its inputs."""
    live = set(outputs)
    for node in reversed(graph.nodes):
        if node.op in CALLS and node not in live and not _is_dead(node, live):
            live.add(node)
    return live


def _is_dead(node: fx.Node, live: set[fx.Node]) -> bool:
    if any(user in live for user in node.users):
        return False
    if writes(node):
        return not any(_is_seen(each, live) for each in written_by(node))
    return node.meta.get("example_value") is not None  # what has no result is there for what it does


def _is_seen(written: fx.Node, live: set[fx.Node]) -> bool:
    """Whether memory that is written to is an input's, or is read by a node that is live."""
    waiting, met = [written], set()
    while waiting:
        node = waiting.pop()
        if node in met:
            continue
        met.add(node)
        if node.op not in CALLS or node in live or any(user in live for user in node.users):
            return True
        if writes(node):
            waiting += written_by(node)
        elif not makes_new_memory(node):
            waiting += node.all_input_nodes
        waiting += [user for user in node.users if not makes_new_memory(user)]
    return False
