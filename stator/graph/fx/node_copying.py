"""Record a stretch of the graph again, on other tensors.   nodes of one layer, other inputs  ->  new nodes

In: the nodes that a stretch of the trace has recorded, and for each node outside it that they use, the node to use
instead.  Out: nodes with the same targets, constants and metadata, named as if they had been recorded one by one.  The
fakes inside the stretch are shared with the first one: nothing of the program holds them any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from stator import _core

_FLAT = frozenset({int, float, bool, str, type(None)})


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
        """Append the copies to the graph; `known` gets the copy of each node.

        `above` takes the place of the first `before` characters of their stack traces; None: they stay as they are.
        """
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
