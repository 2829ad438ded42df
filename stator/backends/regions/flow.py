"""Where values are made, used and written.   a graph  ->  its nodes in order, who needs what how long, whose memory

In: a captured graph without autograd boundaries.  Out: for each place between two nodes, what crosses it, and why
nothing may be cut there.  Symbolic numbers that follow from inputs alone are computed first (`hoisted`) and belong to
no piece.

A view is known by the memory of its fake.  Layers that were replayed share the fakes of the first one, so the answer
is taken from the first node of each content (`numbers`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.backends.graph_key import Contents, Key
from stator.graph.analysis.mutation import storage_of, tensors_in, written_by
from stator.graph.state.torch_state import GRAD_MODE, SETTING_OF_SETTER


class Whole(Exception):
    """The graph must be compiled in one piece."""


class Flow:
    """The nodes of one graph, by place."""

    def __init__(self, gm: fx.GraphModule, example_inputs: list[Any], grad_enabled: bool) -> None:
        self.gm, self.grad_enabled = gm, grad_enabled
        self.inputs: list[fx.Node] = []
        self.hoisted: list[fx.Node] = []
        self.body: list[fx.Node] = []
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                self.inputs.append(node)
            elif node.op == "output":
                self.output = node
            elif node.op != "get_attr":
                (self.hoisted if self._from_inputs(node) else self.body).append(node)
        self.values = dict(zip(self.inputs, example_inputs, strict=True))
        self.contents = Contents(gm)
        self.place = {node: number for number, node in enumerate(self.body)}
        self.numbers = self._number()
        self.states = list(self._settings())
        self.last_use: dict[fx.Node, int] = {}
        for node in [*self.body, self.output]:
            for each in node.all_input_nodes:
                self.last_use[each] = self.place.get(node, len(self.body))

    @functools.cached_property
    def memory(self) -> Memory:
        return Memory(self)

    def _from_inputs(self, node: fx.Node) -> bool:
        """Whether a node computes a number from inputs alone."""
        if type(node.meta.get("example_value")) is not torch.SymInt or node.meta.get("unbacked_bindings"):
            return False
        known = set(self.hoisted)
        return all(each.op == "placeholder" or each in known for each in node.all_input_nodes)

    def value(self, node: fx.Node) -> Any:
        return self.values[node] if node in self.values else node.meta.get("example_value")

    def _number(self) -> list[int]:
        """Equal numbers for nodes of equal operation, constants and layouts."""
        known: dict[Key, int] = {}
        contents = self.contents
        layouts: dict[fx.Node, Key] = {}

        def named(node: fx.Node) -> Key:
            if node.op == "get_attr":
                return contents.of_inner(str(node.target))
            found = layouts.get(node)
            if found is None:
                found = layouts[node] = contents.of(self.value(node), named)
            return found

        return [known.setdefault(contents.of_node(node, named), len(known)) for node in self.body]

    def _settings(self) -> Iterator[dict[Any, Any]]:
        """Torch's settings before each node, as far as the graph changes them."""
        now: dict[Any, Any] = {}
        setters = [node for node in self.body if id(node.target) in SETTING_OF_SETTER]
        for node in setters:
            setting = SETTING_OF_SETTER[id(node.target)]
            key = setting, node.args[:setting.keys]
            if key not in now:
                now[key] = (self.grad_enabled,) if setting is GRAD_MODE else setting.read(*key[1])
        for node in self.body:
            yield now
            if id(node.target) in SETTING_OF_SETTER:
                setting = SETTING_OF_SETTER[id(node.target)]
                now = {**now, (setting, node.args[:setting.keys]): node.args[setting.keys:]}
        yield now

    def symbol_node(self, symbol: object) -> fx.Node:
        """A node that reads a symbol from the sizes of the inputs, before all pieces."""
        for node, value in [*self.values.items(), *[(each, self.value(each)) for each in self.hoisted]]:
            if type(value) is torch.SymInt and value.node.expr == symbol:
                return node
            if isinstance(value, torch.Tensor):
                for place, size in enumerate(value.shape):
                    if type(size) is torch.SymInt and size.node.expr == symbol:
                        with self.gm.graph.inserting_before(self.body[0]):
                            made = self.gm.graph.call_function(torch.ops.aten.sym_size.int, (node, place))
                        made.meta["example_value"] = size
                        self.hoisted.append(made)
                        return made
        raise Whole(f"the size {symbol} is no size of an input")

    def crossing(self, place: int) -> list[fx.Node]:
        """Nodes before a place that are used from there on."""
        return [node for node in self.body[:place] if self.last_use.get(node, -1) >= place]

    def why_not(self, node: fx.Node, place: int) -> str:
        """Why a value may not go from what is before a place to what is behind it; empty where it may."""
        value = node.meta.get("example_value")
        if type(value) is not FakeTensor:
            return "" if type(value) is torch.SymInt else f"{node.name}, which is no tensor, is used on both sides"
        if self.memory.is_written(node, place):
            return f"the memory of {node.name} is written to"
        return ""


class Memory:
    """Which nodes show the same memory, and which memory is written to."""

    def __init__(self, flow: Flow) -> None:
        self.parent: dict[fx.Node, fx.Node] = {}
        self.written: dict[fx.Node, int] = {}  # memory, by one of its nodes -> the place of the last write
        viewed: dict[int, tuple[int, ...]] = {}
        for number, node in zip(flow.numbers, flow.body, strict=True):
            given = node.all_input_nodes
            if number not in viewed:
                storages = {storage_of(each) for each in tensors_in(node.meta.get("example_value"))} - {0}
                viewed[number] = tuple([place for place, each in enumerate(given) if not storages.isdisjoint(
                    [storage_of(tensor) for tensor in tensors_in(flow.value(each))])])
            for place in viewed[number]:
                self.join(node, given[place])
        first: dict[int, fx.Node] = {}
        for node, value in flow.values.items():
            other = first.setdefault(storage_of(value), node)
            if storage_of(value):
                self.join(node, other)
        for place, node in enumerate(flow.body):
            self.written.update({self.root(each): place for each in written_by(node)})
        self.check_inputs(flow)

    def check_inputs(self, flow: Flow) -> None:
        """A piece may write to an input of the graph that has one name and no history."""
        names: dict[fx.Node, int] = {}
        for node, value in flow.values.items():
            root = self.root(node)
            if root in self.written:
                names[root] = names.get(root, 0) + 1
                if names[root] > 1:
                    raise Whole(f"{node.name}, which is written to, has several names")
                self.written[root] = len(flow.body)  # nothing but the input itself goes from piece to piece
                with torch._C.DisableTorchFunction():
                    if value.requires_grad:
                        raise Whole(f"{node.name}, which is written to, has a gradient")

    def join(self, node: fx.Node, other: fx.Node) -> None:
        below, above = self.root(node), self.root(other)
        if below is not above:
            self.parent[below] = above

    def root(self, node: fx.Node) -> fx.Node:
        while (above := self.parent.get(node)) is not None:
            node = above
        return node

    def is_written(self, node: fx.Node, place: int) -> bool:
        """Whether its memory is written to from a place on."""
        return self.written.get(self.root(node), -1) >= place
