"""Record a stretch of the graph again, on other tensors.   nodes of one layer, other inputs  ->  new nodes

In: the nodes that a stretch of the trace has recorded, and for each node outside it that they use, the node to use
instead.  Out: nodes with the same targets, constants and metadata, named as if they had been recorded one by one.  The
fakes inside the stretch are shared with the first one: nothing of the program holds them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch.fx.immutable_collections import immutable_dict
from torch.fx.node import map_arg

_FLAT = frozenset({int, float, bool, str, type(None)})
_NO_NAMES: Any = immutable_dict()


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
            args = node.args if all(type(arg) is fx.Node or type(arg) in _FLAT for arg in node.args) else None
            name = graph._target_to_str(node.target)
            looked_up = (node.op, node.target if node.op == "call_function" else None)
            self.steps.append((node, name, is_bare(name), node.op, node.target, args, looked_up, dict(node.meta)))

    def record(self, graph: fx.Graph, known: dict[fx.Node, fx.Node], place: Callable[[str], str]) -> Play:
        """Append the copies to the graph; `known` gets the copy of each node, `place` changes its stack trace."""
        play = Play(self, [known.get(each, each) for each in self.outer])
        get = known.get
        namespace, table, insert = graph._graph_namespace, graph._find_nodes_lookup_table.table, graph._insert
        named_as, copies, make = namespace._obj_to_name, play.copies, fx.Node
        for node, candidate, bare, op, target, args, looked_up, meta in self.steps:
            given: Any = tuple([get(arg, arg) if type(arg) is fx.Node else arg for arg in args]) \
                if args is not None else map_arg(node.args, lambda inner: get(inner, inner))
            named: Any = map_arg(node.kwargs, lambda inner: get(inner, inner)) if node.kwargs else _NO_NAMES
            name = next_name(namespace, candidate) if bare else namespace.create_name(candidate, None)
            copy = make(graph, name, op, target, given, named)
            named_as[copy] = name
            insert(copy)
            table[looked_up][copy] = None
            copy.meta.update(meta)
            if "stack_trace" in meta:
                copy.meta["stack_trace"] = place(meta["stack_trace"])
            known[node] = copy
            copies.append(copy)
        graph._len += len(self.steps)
        return play


def is_bare(name: str) -> bool:
    """Whether FX would name a node like this, or with a number behind it."""
    return name.isascii() and name.isidentifier() and not name[-1].isdigit()


def next_name(namespace: Any, base: str) -> str:
    """What `create_name` answers for a bare name, without taking it apart."""
    used = namespace._used_names
    if base not in used:
        return namespace.create_name(base, None)  # type: ignore[no-any-return]
    number = namespace._base_count.get(base, 0) + 1
    while (name := f"{base}_{number}") in used:
        number += 1
    used.add(name)
    namespace._base_count[base] = number
    return name


@dataclass
class Play:
    """One recording of a stretch: its copies, in order, what they were given, and which are used after it."""

    stretch: Stretch
    inputs: list[fx.Node]
    copies: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
