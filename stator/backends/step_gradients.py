"""Gradients of a train step that is compiled in pieces.   loss.backward() between two pieces  ->  torch's own engine

In: a graph with `torch.autograd.grad` among its nodes.  Out: marks on the gradients that torch's engine takes between
pieces, the calls of it, and results whose history such a pass has consumed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.autograd_boundaries import (
    BOUNDARY,
    CONSUMED,
    ConsumedHistory,
    InOnePiece,
    ancestors,
    behind,
    is_boundary,
    output_nodes,
    wants_grad,
)
from stator.graph.analysis.step_functions import GRADIENTS, gradients_beside_modules, gradients_without_hooks

_anchor = torch.empty(0, requires_grad=True)
Consumed = dict[int, tuple[str, list[int]]]  # place of a result -> text of the error, places of the inputs behind it


def take_gradients_between(graph: fx.Graph) -> fx.Node | None:
    """Differentiate by torch's engine across and before boundaries; return the last gradient without a history."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    end = max([order[node] for node in graph.nodes if is_boundary(node)], default=-1)
    across: dict[fx.Node, None] = {}
    known = -1
    while known != len(across):
        known, last = len(across), -1
        for node in graph.nodes:
            before = order[node] <= end and not node.kwargs.get("create_graph")
            if node.target in GRADIENTS and (before or any(
                    order[each] <= last for each in ancestors([node]) if each.op not in ("placeholder", "get_attr"))):
                if node.kwargs.get("create_graph"):
                    raise InOnePiece("an autograd boundary before a gradient that can be differentiated")
                across[node] = None
                made = [each for leaf in ancestors([node]) if is_new_leaf(leaf)
                        for each in (leaf, *leaf.users) if each is leaf or each.target == "requires_grad_"]
                for each in (node, *made):
                    each.meta[BOUNDARY] = each.meta.get(BOUNDARY, True)
            last = order[node] if is_boundary(node) else last
    kept = any(node.op != "placeholder" and wants_grad(node) for node in output_nodes(graph))
    for node in list(across)[:None if kept else -1]:  # one pass would consume the compiled backward of another
        node.kwargs = {**node.kwargs, "retain_graph": True}
    return None if kept or not across else max(across, key=order.__getitem__)


def is_new_leaf(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    with torch._C.DisableTorchFunction():
        return node.op != "placeholder" and type(value) is FakeTensor and value.requires_grad and value.is_leaf


class EngineGradients:
    """Have torch's engine differentiate; each gradient gets the layout that the capture gave to later pieces."""

    def __init__(self, node: fx.Node) -> None:
        self.kwargs = node.kwargs
        beside = node.target is gradients_beside_modules
        self.function: Callable[..., tuple[Any, ...]] = gradients_beside_modules if beside else gradients_without_hooks
        promised = node.meta.get("example_value")
        self.strides = [fixed_strides(value) for value in promised] if type(promised) in (tuple, list) else []

    def __call__(self, *args: object) -> tuple[Any, ...]:
        found = self.function(*args, **self.kwargs)
        return tuple([grad if stride is None or grad is None or grad.layout is not torch.strided
                      or grad.stride() == stride else torch.empty_strided(
                          grad.shape, stride, dtype=grad.dtype, device=grad.device).copy_(grad)
                      for grad, stride in zip(found, self.strides, strict=True)]) if self.strides else found


def fixed_strides(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, FakeTensor):
        return None
    with torch._C.DisableTorchFunction():
        stride = value.stride() if value.layout is torch.strided else ()
    return stride if len(stride) == value.dim() and all(type(each) is int for each in stride) else None


def has_nothing_to_fuse(graph: fx.Graph) -> bool:
    """Whether a piece only makes tensors, renames them and calls kernels over lists: a compiler gains nothing."""
    for node in graph.nodes:
        name = str(getattr(node.target, "__name__", node.target))
        if node.op not in ("placeholder", "output", "get_attr") and node.all_input_nodes \
                and node.target is not operator.getitem and name not in ("detach", "detach_") \
                and not name.endswith("_like") and not name.startswith("_foreach_"):
            return False
    return True


def consumed_results(graph: fx.Graph) -> Consumed:
    places = {node: place for place, node in enumerate(graph.find_nodes(op="placeholder"))}
    results: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    found: Consumed = {}
    for place, node in enumerate(results):
        if type(node) is fx.Node and CONSUMED in node.meta:
            inputs = {each for one in behind(node.all_input_nodes[0]) for each in one.all_input_nodes}
            found[place] = node.meta[CONSUMED], [places[each] for each in inputs if each in places and wants_grad(each)]
    return found


def with_histories(compiled: Callable[..., Any], consumed: Consumed) -> Callable[..., Any]:
    """Give results the history that a backward pass in the graph has consumed: it raises the error of autograd."""
    def run(*args: object) -> Any:
        out = list(compiled(*args))
        with torch.enable_grad():
            for place, (text, inputs) in consumed.items():
                anchors = [args[each] for each in inputs] or [_anchor]
                out[place] = ConsumedHistory.apply(out[place], text, *anchors)  # type: ignore[no-untyped-call]
        return out

    return run
