"""Draw from torch's random streams as eager does.   torch.rand([]); return torch.rand(3)  ->  two draws in the graph

A graph that runs operator by operator draws from the program's own streams: what is drawn next, in the graph and after
it, depends on every draw before.  AOTAutograd drops a draw that nobody uses, and moves one of the backward pass, which
needs no gradient, into the forward pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx
from torch._ops import HigherOrderOperator
from torch.fx.node import _side_effectful_functions
from torch.utils.checkpoint import CheckpointPolicy

from stator.native.torch_ops import draws_inside, draws_random_numbers

_TAG = "partitioner_tag"  # of AOTAutograd, on each node of a graph for both passes


@contextmanager
def eager_streams(module: fx.GraphModule) -> Iterator[None]:
    """While AOTAutograd works: have it keep every draw, also in branches, and take none apart into others."""
    inner = [each for each in module.modules() if isinstance(each, fx.GraphModule)]
    operators = {node.target for each in inner for node in each.graph.nodes if _draws_inside(each, node)}
    operators -= _side_effectful_functions
    _side_effectful_functions.update(operators)
    try:
        with importlib.import_module("torch._inductor.config").patch(fallback_random=True):
            yield
    finally:
        _side_effectful_functions.difference_update(operators)


_FORWARD = (None, CheckpointPolicy.MUST_SAVE)  # marks of what no checkpoint makes again


def draws_in_place(partition: Callable[..., Any]) -> Callable[..., Any]:
    """A way to cut the graph of both passes that leaves each draw in its pass, in its order."""
    def cut(joint: fx.GraphModule, *args: object, **kwargs: object) -> Any:
        cut_by = partition
        for node in joint.graph.nodes:
            if node.meta.get(_TAG) == "is_forward" and node.meta.get("recompute") in _FORWARD and _draws(joint, node):
                node.meta[_TAG] = "must_be_in_forward"
            elif node.meta.get(_TAG) == "is_backward" and _draws(joint, node):
                node.meta[_TAG] = "must_be_in_backward"
                # Others sort the backward pass by what needs what.
                cut_by = importlib.import_module("torch._functorch.partitioners").default_partition
        return cut_by(joint, *args, **kwargs)
    return cut


def _draws(module: fx.GraphModule, node: fx.Node) -> bool:
    return draws_random_numbers(node.target) or _draws_inside(module, node)


def _draws_inside(module: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node runs graphs that draw (torch.cond)."""
    return isinstance(node.target, HigherOrderOperator) and any(
        isinstance(inner := getattr(module, str(each.target), None), fx.GraphModule) and draws_inside(inner)
        for each in node.all_input_nodes if each.op == "get_attr")
