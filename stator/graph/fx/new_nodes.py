"""Nodes of an FX graph, made directly.   op, target, arguments  ->  the node that `graph.create_node` would make

`create_node` searches the arguments for raw symbols, which the recorder never leaves among them, and spells every name
anew; it is half of what a node costs.
"""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.fx.immutable_collections import immutable_dict

_new, _init, _take = fx.Node.__new__, fx.Node.__mro__[1].__init__, fx.Node._update_args_kwargs


def bare_node(graph: fx.Graph, name: str, op: str, target: object, args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> fx.Node:
    """A node that stands in no list yet, its target known to be right."""
    node = _new(fx.Node)
    _init(node, graph, name, op, target, None)
    _take(node, args, kwargs)
    return node


def new_node(graph: fx.Graph, op: str, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
    """An operation, at the place where the graph takes nodes now."""
    name = graph._graph_namespace.create_name(graph._target_to_str(target), None)
    node = bare_node(graph, name, op, target, args, kwargs or immutable_dict())
    graph._graph_namespace.associate_name_with_obj(name, node)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def new_input(graph: fx.Graph, last: fx.Node | None, name: str) -> fx.Node:
    """An input, after the last one."""
    unique = graph._graph_namespace.create_name(name if name.islower() else graph._target_to_str(name), None)
    if unique != name and _is_taken(name, last):
        name = unique
    node = bare_node(graph, unique, "placeholder", name, (), immutable_dict())
    graph._graph_namespace.associate_name_with_obj(unique, node)
    (graph._root if last is None else last).append(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def _is_taken(name: str, node: fx.Node | None) -> bool:
    """Whether an input is called so already: in the code that fx writes, inputs are parameters."""
    while node is not None and node.op == "placeholder":
        if node.target == name:
            return True
        node = node.prev
    return False


def first_operation(node: fx.Node) -> fx.Node:
    """The node before which something computed from an input can be put."""
    while node.op == "placeholder":
        node = node.next
    return node
