"""Give results a history that a backward pass in the graph has consumed.   loss, detached  ->  loss, with a grad_fn

In: a graph that returns such results detached (library/torch/backward).  Out: what makes of each a tensor that
requires a gradient, and whose own backward pass raises the error of autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.graph.analysis.autograd_boundaries import CONSUMED, ConsumedHistory, behind, wants_grad

_anchor = torch.empty(0, requires_grad=True)
Consumed = dict[int, tuple[str, list[int]]]  # place of a result -> text of the error, places of the inputs behind it


def consumed_results(graph: fx.Graph) -> Consumed:
    places = {node: place for place, node in enumerate(graph.find_nodes(op="placeholder"))}
    results: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    found: Consumed = {}
    for place, node in enumerate(results):
        if type(node) is fx.Node and CONSUMED in node.meta:
            inputs = {each for one in behind(node.all_input_nodes[0]) for each in one.all_input_nodes}
            found[place] = node.meta[CONSUMED], [places[each] for each in inputs if each in places and wants_grad(each)]
    return found


def with_histories(compiled: Callable[..., Any], consumed: Consumed) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        out = list(compiled(*args))
        with torch.enable_grad():
            for place, (text, inputs) in consumed.items():
                anchors = [args[each] for each in inputs] or [_anchor]
                out[place] = ConsumedHistory.apply(out[place], text, *anchors)  # type: ignore[no-untyped-call]
        return out

    return run
