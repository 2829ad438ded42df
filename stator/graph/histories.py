"""How results of a graph hang together for autograd.   loss, fake = graph(...)  ->  whether they share a history

AOTAutograd makes one backward of a whole graph: the first backward pass frees what all of its results would need.
Autograd itself frees what lies behind the one result, and another may still be differentiated.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree


def separate_histories(graph: fx.Graph) -> bool:
    """Whether two results can be differentiated that have no operation in common."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    found = [behind(node) for node in output.all_input_nodes if node.op != "placeholder" and wants_grad(node)]
    return any(first.isdisjoint(second) for i, first in enumerate(found) for second in found[:i])


def behind(node: fx.Node) -> set[fx.Node]:
    """The operations that a backward pass from a result goes through."""
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each not in seen and each.op != "placeholder" and wants_grad(each):
            seen.add(each)
            waiting += each.all_input_nodes
    return seen


def wants_grad(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("example_value"))
    with torch._C.DisableTorchFunction():
        return any(type(leaf) is FakeTensor and leaf.requires_grad for leaf in leaves)
