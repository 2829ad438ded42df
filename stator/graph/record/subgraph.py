"""Record part of a trace into a graph of its own.   with Subgraph(recorder) as part: ...  ->  part.module, part.lifted

What is recorded meanwhile goes to the inner graph.  A tensor of the outer graph that is used inside becomes an input
of the inner one (it is *lifted*); a tensor read from outside the program still becomes an input of the outermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.fx.graph_modules import make_graph_module
from stator.graph.fx.nodes import fix_targets
from stator.graph.record.recorder_state import GraphScope
from stator.graph.services import Recorder
from stator.shapes.symbol_nodes import SymbolNodes
from stator.shapes.symbolic_values import SYMBOLIC, specialise

_STATE = ("graph", "nodes", "symbols", "scope")


class _Nodes(dict[int, Any]):
    """The nodes of an inner graph by fake tensor; one of the outer graph is lifted at its first use."""

    def __init__(self, part: Subgraph) -> None:
        super().__init__()
        self.part = part

    def get(self, key: int, default: object = None) -> Any:
        found = super().get(key)
        if found is None and self.part._outer["nodes"].get(key) is not None:
            kept = reversed(self.part.recorder.kept)
            found = self[key] = self.part.lift(next(fake for fake in kept if id(fake) == key))
        return default if found is None else found


class _Symbols(SymbolNodes):
    """The numbers of an inner graph: a symbol that it does not make itself is handed in."""

    def __init__(self, part: Subgraph, outer: SymbolNodes) -> None:
        super().__init__(part.graph, outer.shape_env)
        self.part, self.outer = part, outer

    def dispatcher(self) -> Any:
        return self.outer.dispatcher()

    def node_of(self, value: object) -> Any:
        if type(value) is torch.SymFloat and not self.part.floats:
            return specialise(value, "a function that becomes a graph of its own")
        return super().node_of(value)

    def can_make(self, expression: sympy.Basic) -> bool:
        return all(symbol in self.known or (symbol.is_integer or self.part.floats) and self.outer.can_make(symbol)
                   for symbol in expression.free_symbols)

    def _symbol(self, symbol: sympy.Symbol) -> fx.Node:
        hint = self.shape_env.backed_var_to_val.get(symbol)
        make: Any = self.shape_env.create_symintnode if symbol.is_integer else self.shape_env.create_symfloatnode
        kind = int if symbol.is_integer else float
        return self.part.lift(make(symbol, hint=None if hint is None else kind(hint)))


class Subgraph:
    """An inner graph under construction."""

    def __init__(self, recorder: Recorder, floats: bool = False) -> None:
        self.recorder = recorder
        self.floats = floats  # whether who runs the graph takes floats of the outer one, beside tensors and sizes
        self.graph = fx.Graph()
        self.lifted: list[Any] = []  # fakes and sizes of the outer graph, in the order of their inputs
        self.inputs: list[fx.Node] = []  # their placeholders
        self.module: fx.GraphModule | None = None
        self._last_input: fx.Node | None = None
        self._last_bound: fx.Node | None = None

    def __enter__(self) -> Subgraph:
        recorder = self.recorder
        if recorder.classes:
            raise Break("SB017", "a tensor subclass beside a function that becomes a graph of its own")
        recorder.refuse_tangents("a function that becomes a graph of its own")
        if recorder.region.under_hooks:
            raise Break("SB016", "a function that becomes a graph of its own, under hooks on saved tensors")
        self._begun = len(recorder.kept)
        self._outer = self._current()
        scope = GraphScope(self, None, False, recorder.scope.calls)
        self._inner = {"graph": self.graph, "nodes": _Nodes(self), "symbols": _Symbols(self, recorder.symbols),
                       "scope": scope}
        self._install(self._inner)
        return self

    def __exit__(self, *exc: object) -> None:
        self._inner = self._current()
        self._install(self._outer)

    def _current(self) -> dict[str, Any]:
        return {name: getattr(self.recorder, name) for name in _STATE}

    @property
    def outer_fakes(self) -> list[Any]:
        """The tensors that were not made by the inner graph: those of before, and the program's own."""
        before = [kept for kept in self.recorder.kept[:self._begun] if isinstance(kept, torch.Tensor)]
        return before + [given.fake for given in self.recorder.inputs if isinstance(given.fake, torch.Tensor)]

    @contextlib.contextmanager
    def reopened(self) -> Iterator[None]:
        """Record into it again, after it was left."""
        self._outer = self._current()
        self._install(self._inner)
        try:
            yield
        finally:
            self.__exit__()

    def _install(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self.recorder, name, value)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Record into the outer graph for a moment."""
        inner = self._current()
        self._install(self._outer)
        try:
            yield
        finally:
            self._outer = self._current()
            self._install(inner)

    def add_input(self, name: str, fake: FakeTensor) -> fx.Node:
        self.graph.inserting_after(self._last_input or self.graph._root)
        node = self._last_input = self.graph.create_node("placeholder", name, (), {})
        self.graph.inserting_before(self.graph._root)
        node.meta["example_value"] = fake
        return node

    def bind(self, name: str, fake: FakeTensor) -> None:
        """An input that stands for `fake`, a tensor or a number that nobody knows, inside."""
        node = self._last_bound = self.add_input(name, fake)
        if type(fake) in SYMBOLIC:
            self.recorder.symbols.remember(fake, node)
            return
        self.recorder.kept.append(fake)
        self.recorder.nodes[id(fake)] = node

    def lift(self, value: object) -> fx.Node:
        node = self.add_input(f"outer_{len(self.lifted)}", value)
        self.lifted.append(value)
        self.inputs.append(node)
        return node

    def align(self, operands: list[Any]) -> None:
        """Take exactly these, in this order; what is lifted already must be among them."""
        known = dict(zip(map(operand_key, self.lifted), self.inputs, strict=True))
        before = self._last_bound or self.graph._root
        for number, operand in enumerate(operands):
            node = known.get(operand_key(operand))
            if node is None:
                node = self.graph.create_node("placeholder", f"unused_{number}", (), {})
                node.meta["example_value"] = operand
            before.append(node)
            before = node

    def finish(self, outputs: list[Any], single: bool = False) -> fx.GraphModule:
        """Close the graph (while it is still being recorded into); `single` leaves its one output without a tuple."""
        nodes = tuple(self.recorder.node_of(each) if isinstance(each, torch.Tensor) else self.recorder.to_node_arg(each)
                      for each in outputs)
        self.graph.output(nodes[0] if single else nodes)
        fix_targets(self.graph)
        self.module = make_graph_module(self.graph, self.recorder.scope.inner_graphs)
        return self.module


def operand_key(value: Any) -> Any:
    """Equal for one and the same operand of several inner graphs."""
    return id(value) if isinstance(value, torch.Tensor) else value.node.expr


def all_operands(*parts: Subgraph) -> list[Any]:
    return list({operand_key(value): value for part in reversed(parts) for value in reversed(part.lifted)}.values())
