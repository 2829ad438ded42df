"""Where a symbol lies in what a node gives.   node, (.size, [0])  ->  sym_size.int(node, 0)

In: a node and the path that `compute_unbacked_bindings` names (method calls, items, conversions).  Out: the node of
the number at its end, the steps in between appended to the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import CallMethodKey, ConvertIntKey, DivideByKey, InnerTensorKey
from torch.utils import _pytree as pytree

from stator.host.value_kinds import is_a

_OPERATORS = {"size": torch.ops.aten.sym_size.int, "stride": torch.ops.aten.sym_stride.int,
              "storage_offset": torch.ops.aten.sym_storage_offset.default}


def follow(graph: fx.Graph, node: fx.Node, path: tuple[Any, ...], node_of: Callable[[Any], Any]) -> fx.Node:
    """The node at the end of `path`; `node_of` gives the node of a symbolic divisor."""
    keys = list(path)
    while keys:
        key = keys.pop(0)
        if is_a(key, CallMethodKey):
            args = (keys.pop(0).idx,) if keys and is_a(keys[0], pytree.SequenceKey) else ()
            node = _method(graph, node, key.name, args)
        elif is_a(key, pytree.SequenceKey):
            node = _call(graph, operator.getitem, node, key.idx)
        elif is_a(key, ConvertIntKey):
            node = graph.call_function(torch.sym_ite, (node, 1, 0))
        elif is_a(key, DivideByKey):
            node = graph.call_function(operator.floordiv, (node, node_of(key.divisor)))
        elif is_a(key, InnerTensorKey):
            node = _call(graph, getattr, node, key.inner_name)
        else:
            raise AssertionError(f"no way to follow {key} from {node}")
    return node


def _method(graph: fx.Graph, node: fx.Node, name: str, args: tuple[Any, ...]) -> fx.Node:
    made = _OPERATORS.get(name)
    if made is None:
        return graph.call_method(name, (node, *args))
    call = graph.call_function(made, (node, *args))
    if "example_value" in node.meta:
        # Of the tensor as the trace left it, as the example value of its node is: the pass that inserts assertions
        # reads both, and takes equal ones for the same number.
        call.meta["example_value"] = getattr(node.meta["example_value"], name)(*args)
    return call


def _call(graph: fx.Graph, function: Callable[..., Any], node: fx.Node, argument: object) -> fx.Node:
    call = graph.call_function(function, (node, argument))
    if "example_value" in node.meta:
        call.meta["example_value"] = function(node.meta["example_value"], argument)
    return call
