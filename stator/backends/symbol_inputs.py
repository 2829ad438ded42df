"""Pass symbols to backends as torch does.   f(x[s0, 3])  ->  f(s0, x[s0, 3])

In: a graph for a user-defined backend, whose inputs have symbolic sizes.  Out: a graph with a placeholder in front for
each symbol that no input is, and a call that reads these sizes from the tensors.  Backends that split graphs (serving
engines) find sizes of pieces among their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.fx.graph_modules import InnerGraphModule

Compiled = Callable[..., object]


def missing_symbols(inputs: Sequence[object]) -> list[tuple[torch.SymInt, int, int]]:
    """Symbols that are sizes of tensors and no inputs: each with an input and a dimension that has it."""
    known = {each.node.expr for each in inputs if isinstance(each, torch.SymInt)}
    found = []
    for place, each in enumerate(inputs):
        if isinstance(each, FakeTensor) and each._has_symbolic_sizes_strides and each.layout is torch.strided:
            for dim, size in enumerate(each.shape):
                symbol = size.node.expr if isinstance(size, torch.SymInt) else None
                if isinstance(symbol, sympy.Symbol) and symbol not in known:
                    known.add(symbol)
                    found.append((size, place, dim))
    return found


def with_symbols(
        gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any], Callable[[Compiled], Compiled]]:
    """The graph and inputs for the backend, and the way back to a call with the inputs of the residual."""
    missing = missing_symbols(inputs)
    if not missing:
        return gm, inputs, lambda compiled: compiled
    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    for symbol, _, _ in missing:
        graph.placeholder(str(symbol.node.expr)).meta["example_value"] = symbol
    graph.output(graph.graph_copy(gm.graph, copied))
    end, last = (next(iter(reversed(each.nodes))) for each in (graph, gm.graph))
    end.meta = dict(last.meta)
    made = InnerGraphModule(gm, graph)
    made.meta.update(gm.meta)
    places = [(place, dim) for _, place, dim in missing]

    def finish(compiled: Compiled) -> Compiled:
        def run(*args: torch.Tensor) -> object:
            return compiled(*[args[place].shape[dim] for place, dim in places], *args)
        return run if callable(compiled) else compiled
    return made, [*[symbol for symbol, _, _ in missing], *inputs], finish
