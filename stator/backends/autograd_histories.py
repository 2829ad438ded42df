"""Give results a history that a backward pass in the graph has consumed.   loss, detached  ->  loss, with a grad_fn

In: a graph that returns such results detached (library/torch/backward).  Out: what makes of each a tensor that
requires a gradient, and whose own backward pass raises the error of autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.graph.analysis.autograd_boundaries import CONSUMED, ConsumedHistory

_anchor = torch.empty(0, requires_grad=True)


def consumed_results(graph: fx.Graph) -> dict[int, str]:
    results: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    return {place: node.meta[CONSUMED] for place, node in enumerate(results)
            if type(node) is fx.Node and CONSUMED in node.meta}


def with_histories(compiled: Callable[..., Any], consumed: dict[int, str]) -> Callable[..., Any]:
    def run(*args: object) -> Any:
        out = list(compiled(*args))
        with torch.enable_grad():
            for place, text in consumed.items():
                out[place] = ConsumedHistory.apply(out[place], text, _anchor)  # type: ignore[no-untyped-call]
        return out

    return run
