"""Name a graph by its content.   nodes, constants, layouts of fakes  ->  a hashable key

Equal keys: a compiler, under equal settings, makes the same of both.  Symbolic sizes are compared by their expressions,
within one capture; `compiled_graphs.py` makes keys that hold across captures.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.backends.cuda_graphs import is_member_of_module
from stator.graph.analysis.may_fail import CAUGHT
from stator.graph.analysis.mutation import storage_of
from stator.graph.fx.graph_modules import AT, NAMED_REGION
from stator.shapes.symbolic_values import SYMBOLIC

Key = Hashable
# Where a node stands, and what its layout and its memory tell already.
_UNMARKED = frozenset({"example_value", "stack_trace", "source", "source_fn_stack", "unbacked_bindings", AT, CAUGHT,
                        NAMED_REGION})
_PLAIN = frozenset({str, int, bool, type(None), type(...), range, torch.device, torch.dtype, torch.layout,
                    torch.memory_format})


class Unkeyed(Exception):
    """A graph holds something that has no content to compare."""


class Same:
    """An object that is equal to itself alone; the key keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value


class Contents:
    """Keys of the values of one graph module."""

    def __init__(self, owner: fx.GraphModule) -> None:
        self.owner = owner
        self.layouts: dict[int, Key] = {}  # of fakes, which the graph keeps alive
        self.inner: dict[str, Key] = {}

    def of_node(self, node: fx.Node, named: object) -> Key:
        """`named`: what stands for a node among the arguments."""
        return (node.op, self.of_target(node), self.of(node.args, named), self.of(node.kwargs, named),
                self.of(node.meta.get("example_value"), named), self.marks(node))

    def of_target(self, node: fx.Node) -> Key:
        if node.op == "get_attr":
            return self.of_inner(str(node.target))
        return None if node.op == "placeholder" else node.target if type(node.target) is str else self.callee(node)

    def callee(self, node: fx.Node) -> Key:
        return Same(node.target)

    def of_inner(self, name: str) -> Key:
        if name not in self.inner:
            held: Any = self.owner
            for part in name.split("."):
                held = getattr(held, part)
            self.inner[name] = self.of_graph(held) if isinstance(held, fx.GraphModule) else self.other(held)
        return self.inner[name]

    def of_graph(self, module: fx.GraphModule) -> Key:
        return graph_key(Contents(module))

    def of_input(self, node: fx.Node, value: object) -> Key:
        """A value from outside: also what a compiler may rely on from call to call."""
        source = node.meta.get("source")
        static = source is not None and is_member_of_module(source)
        return (self.of(value, None), static, isinstance(value, torch.nn.Parameter), self.marks(node))

    def marks(self, node: fx.Node) -> Key:
        found = [(name, value) for name, value in node.meta.items() if name not in _UNMARKED]
        return tuple([(name, self.of(value, _refuse)) for name, value in sorted(found)]) if found else ()

    def of(self, value: Any, named: Any) -> Key:
        cls = type(value)
        if cls is fx.Node:
            return named(value)  # type: ignore[no-any-return]
        if cls in _PLAIN:
            return cls, value
        if cls is FakeTensor or isinstance(value, FakeTensor):
            found = self.layouts.get(id(value))
            if found is None:
                found = self.layouts[id(value)] = self.layout(value)
            return found
        if cls in SYMBOLIC:
            return cls, self.number(value)
        if cls in (float, complex):
            return cls, repr(value)  # -0.0 is not 0.0, and nan is nan
        if issubclass(cls, (tuple, list)):
            kind = cls if hasattr(cls, "_fields") else tuple if issubclass(cls, tuple) else list
            return kind, tuple([self.of(item, named) for item in value])
        if issubclass(cls, dict):
            return dict, tuple([(self.of(name, named), self.of(item, named)) for name, item in value.items()])
        if cls is slice:
            return slice, tuple([self.of(part, named) for part in (value.start, value.stop, value.step)])
        return self.other(value)

    def other(self, value: object) -> Key:
        """A value without a content of its own."""
        return Same(value)

    def number(self, value: torch.SymInt) -> Key:
        return value.node.expr

    def layout(self, fake: FakeTensor) -> Key:
        with torch._C.DisableTorchFunction():
            facts = (fake.dtype, fake.device, fake.requires_grad, fake.layout, fake.is_inference())
            if fake.layout is not torch.strided:
                raise Unkeyed("a tensor that is not strided")
            extents = [*fake.shape, *fake.stride(), fake.storage_offset()]
            return (*facts, fake.is_conj(), fake.is_neg(),
                    *[self.number(each) if type(each) in SYMBOLIC else each for each in extents])


def _refuse(node: fx.Node) -> Key:
    raise Unkeyed(f"a mark that refers to {node.name}")


def numbers_key(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([value.node.expr if type(value) in SYMBOLIC else value for value in values])


def stretch_key(contents: Contents, nodes: list[fx.Node], inputs: list[fx.Node], values: list[Any],
                outputs: list[fx.Node]) -> Key:
    """Key of some nodes of a graph: as a function from `inputs`, with these fake values, to `outputs`."""
    place: dict[fx.Node, int] = {node: number for number, node in enumerate(inputs)}
    of_inputs = tuple([contents.of_input(node, value) for node, value in zip(inputs, values, strict=True)])
    steps = []

    def named(node: fx.Node) -> Key:
        return contents.of_inner(str(node.target)) if node.op == "get_attr" else ("node", place[node])

    for node in nodes:
        steps.append(contents.of_node(node, named))
        place[node] = len(place)
    return of_inputs, shared(values), tuple(steps), tuple([place[node] for node in outputs])


def shared(values: Iterable[Any]) -> Key:
    """Which inputs share memory: for each, the first one on its storage."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(storage_of(value), number) if isinstance(value, torch.Tensor) else number
                  for number, value in enumerate(values)])


def graph_key(contents: Contents) -> Key:
    nodes = list(contents.owner.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    output = nodes[-1]
    body = [node for node in nodes if node.op not in ("placeholder", "output", "get_attr")]
    values = [node.meta.get("example_value") for node in inputs]
    place = {node: number for number, node in enumerate([*inputs, *body])}

    def named(node: fx.Node) -> Key:
        return contents.of_inner(str(node.target)) if node.op == "get_attr" else ("node", place[node])

    return stretch_key(contents, body, inputs, values, []), contents.of(output.args, named)
