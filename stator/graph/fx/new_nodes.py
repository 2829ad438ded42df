"""Nodes of an FX graph, made directly.   op, target, arguments  ->  the node that `graph.create_node` would make

`create_node` searches the arguments for raw symbols, which the recorder never leaves among them, and spells every name
anew; it is half of what a node costs.  A stretch that the trace has recorded is recorded again on other tensors: nodes
with the same targets, constants and metadata, named as if they had been recorded one by one.  The fakes inside the
stretch are shared with the first one: nothing of the program holds them any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch.fx.immutable_collections import immutable_dict
from torch.fx.node import map_arg

from stator import _core

_new, _init, _take = fx.Node.__new__, fx.Node.__mro__[1].__init__, fx.Node._update_args_kwargs
_FLAT = frozenset({int, float, bool, str, type(None)})


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


# ---------------------------------------------------------------------- copies of a stretch


class Stretch:
    """Recorded nodes, ready to be recorded again."""

    __slots__ = ("steps", "outer", "wanted")

    def __init__(self, graph: fx.Graph, nodes: Iterable[fx.Node]) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self.outer: list[fx.Node] = []  # what it uses of the graph before it
        self.wanted: tuple[int, ...] | None = None  # which of its nodes are used after it
        own: set[fx.Node] = set()
        for node in nodes:
            own.add(node)
            self.outer += [each for each in node.all_input_nodes if each not in own and each not in self.outer]
            args = node.args if all(type(arg) is fx.Node or is_free(arg) for arg in node.args) else None
            kwargs = node.kwargs if is_free(node.kwargs) else None
            name = graph._target_to_str(node.target)
            looked_up = (node.op, node.target if node.op == "call_function" else None)
            self.steps.append((node, name, is_bare(name), node.op, node.target, args, kwargs, looked_up,
                               dict(node.meta)))

    def record(self, graph: fx.Graph, known: dict[fx.Node, fx.Node], above: str | None, before: int) -> Play:
        """Append copies to the graph and to `known`; `above` replaces the first `before` characters of stack traces."""
        play = Play(self, [known.get(each, each) for each in self.outer])

        def mapped(arguments: object) -> Any:
            return map_arg(arguments, lambda inner: known.get(inner, inner))

        if graph._insert != graph._root.prepend:
            raise AssertionError("a stretch is recorded at the end of the graph")
        namespace = graph._graph_namespace
        names = namespace._used_names, namespace._base_count, namespace.create_name, namespace._obj_to_name
        play.copies = _core.copy_nodes(self.steps, graph, known, names, graph._find_nodes_lookup_table.table, mapped,
                                       above, before)
        graph._len += len(self.steps)
        return play


def is_free(value: object) -> bool:
    """Whether there is no node in it."""
    if type(value) in _FLAT:
        return True
    found: list[fx.Node] = []
    map_arg(value, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return not found


def is_bare(name: str) -> bool:
    """Whether FX would name a node like this, or with a number behind it."""
    return name.isascii() and name.isidentifier() and not name[-1].isdigit()


@dataclass
class Play:
    """One recording of a stretch: its copies, in order, what they were given, and which are used after it."""

    stretch: Stretch
    inputs: list[fx.Node]
    copies: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
