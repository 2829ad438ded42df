"""Record part of a trace into a graph of its own.   with Subgraph(recorder) as part: ...  ->  part.module, part.lifted

What is recorded meanwhile goes to the inner graph.  A tensor of the outer graph that is used inside becomes an input
of the inner one (it is *lifted*); a tensor read from outside the program still becomes an input of the outermost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from stator.breaks import Break
from stator.shapes.nodes import SymbolNodes


class _Nodes(dict[int, Any]):
    """The nodes of an inner graph by fake tensor; one that only the outer graph knows is lifted when asked for."""

    def __init__(self, part: Subgraph) -> None:
        super().__init__()
        self.part = part

    def get(self, key: int, default: Any = None) -> Any:
        found = super().get(key)
        if found is None and self.part.outer_knows(key):
            found = self[key] = self.part.lift(key)
        return default if found is None else found


class Subgraph:
    """An inner graph under construction."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.graph = fx.Graph()
        self.lifted: list[Any] = []  # fakes of the outer graph, in the order of their inputs
        self.module: fx.GraphModule | None = None
        self._last_input: fx.Node | None = None

    def __enter__(self) -> Subgraph:
        recorder = self.recorder
        self._outer = {name: getattr(recorder, name) for name in _STATE}
        self._inner = {"graph": self.graph, "nodes": _Nodes(self), "enclosing": self, "_last_input": None,
                       "symbols": SymbolNodes(self.graph, recorder.fake_mode.shape_env), "data_dependent": False,
                       "calls": recorder.calls}
        self._install(self._inner)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._install(self._outer)

    def _install(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self.recorder, name, value)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Record into the outer graph for a moment."""
        inner = {name: getattr(self.recorder, name) for name in _STATE}
        self._install(self._outer)
        try:
            yield
        finally:
            self._outer = {name: getattr(self.recorder, name) for name in _STATE}
            self._install(inner)

    def add_input(self, name: str, fake: Any) -> fx.Node:
        if any(type(size) is not int for size in fake.shape):
            raise Break("SB003", "a size that is not a constant, in a function of its own graph")
        if self._last_input is None:
            self.graph.inserting_after(self.graph._root)
        else:
            self.graph.inserting_after(self._last_input)
        node = self._last_input = self.graph.create_node("placeholder", name, (), {})
        self.graph.inserting_before(self.graph._root)
        node.meta["example_value"] = fake
        return node

    def bind(self, name: str, fake: Any) -> None:
        """An input that stands for `fake` inside."""
        self.recorder.kept.append(fake)
        self.recorder.nodes[id(fake)] = self.add_input(name, fake)

    def outer_knows(self, key: int) -> bool:
        return self._outer["nodes"].get(key) is not None

    def lift(self, key: int) -> fx.Node:
        fake = next(kept for kept in reversed(self.recorder.kept) if id(kept) == key)
        node = self.add_input(f"outer_{len(self.lifted)}", fake)
        self.lifted.append(fake)
        return node

    def finish(self, outputs: list[Any]) -> fx.GraphModule:
        """Close the graph (while it is still being recorded into)."""
        self.graph.output(tuple(self.recorder.node_of(fake) for fake in outputs))
        self.module = fx.GraphModule(torch.nn.Module(), self.graph)
        return self.module


_STATE = ("graph", "nodes", "enclosing", "_last_input", "symbols", "data_dependent", "calls")
