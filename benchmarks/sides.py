"""The two implementations that are compared, behind one interface.

In: a name.  Out: a `Side` that compiles a callable with a backend and forgets what it compiled.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

import stator

Backend = str | Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class Side:
    name: str
    compile: Callable[[Callable[..., Any], Backend], Callable[..., Any]]
    forget: Callable[[], None]

    def make_cold(self) -> None:
        """Forget every compilation, and what torch remembers of fake tensors: it serves both sides."""
        self.forget()
        FakeTensorMode.cache_clear()
        gc.collect()


STATOR = Side("stator", lambda fn, backend: stator.compile(fn, backend=backend), stator.reset)
DYNAMO = Side("torch._dynamo", lambda fn, backend: torch.compile(fn, backend=backend), torch._dynamo.reset)
SIDES = {side.name: side for side in (STATOR, DYNAMO)}


@dataclass
class GraphCollector:
    """A backend that keeps the graphs it is given, and the real inputs of each one's first call."""

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    inputs: list[tuple[Any, ...]] = field(default_factory=list)

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)

        def run(*inputs: Any) -> Any:
            if len(self.inputs) < len(self.graphs):
                self.inputs.append(inputs)
            return graph.forward(*inputs)

        return run

    @property
    def operations(self) -> int:
        """How many calls the graphs hold: what was captured, whatever the inputs are named."""
        return sum(node.op.startswith("call_") for graph in self.graphs for node in graph.graph.nodes)
