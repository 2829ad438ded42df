"""Follow gradients over the borders of a piece.   a piece  ->  whether its gradients arrive laid out as is expected

AOTAutograd lays the gradient of a result out as the result is, and copies one that is not.  A whole graph does not,
and a product of matrices may round otherwise for another layout.  So the piece runs on fake tensors, forward and
backward: where the gradient of what comes over a border has another layout than the value, a cut would show.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.collect_metadata_analysis import coerce_tangent_and_suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_arg

from stator.backends.graph_key import numbers_key
from stator.backends.pieces import settings_kept, torch_set_to
from stator.backends.regions.extraction import Piece, wants_grad
from stator.backends.regions.flow import Flow
from stator.backends.regions.probes import fresh_fake
from stator.graph.fx.nodes import run_target


def moved_gradient(flow: Flow, piece: Piece, mode: FakeTensorMode) -> str:
    """Which gradient would be laid out anew at a border; empty where none would."""
    borders = [node for node in dict.fromkeys(piece.inputs)
               if node.op != "placeholder" and wants_grad(flow.value(node))]
    results = [node for node in piece.outputs if wants_grad(flow.value(node))]
    if not borders or not results:
        return ""
    values: dict[fx.Node, Any] = {
        node: fresh_fake(value, mode) if isinstance(value := flow.value(node), torch.Tensor) else value
        for node in piece.inputs}
    try:
        with settings_kept(piece.nodes), torch_set_to(flow.states[piece.start]), mode, enable_python_dispatcher():
            run(flow.gm, piece.nodes, values)
            tangents = [coerce_tangent_and_suggest_memory_format(values[node])[0] for node in results]
            found = torch.autograd.grad([values[node] for node in results], [values[node] for node in borders],
                                        tangents, allow_unused=True)
    except Exception as error:
        return f"its gradients cannot be followed: {type(error).__name__}"
    for node, gradient in zip(borders, found, strict=True):
        if gradient is not None and layout(gradient) != layout(
                coerce_tangent_and_suggest_memory_format(values[node])[0]):
            return f"the gradient of {node.name} would be laid out anew"
    return ""


def run(gm: fx.GraphModule, nodes: list[fx.Node], values: dict[fx.Node, Any]) -> None:
    def value(node: fx.Node) -> Any:
        return getattr(gm, str(node.target)) if node.op == "get_attr" else values[node]

    for node in nodes:
        values[node] = run_target(node.op, node.target, *map_arg((node.args, node.kwargs), value))


def layout(tensor: torch.Tensor) -> Any:
    """Strides, as far as they matter."""
    with torch._C.DisableTorchFunction():
        return [stride for size, stride in zip(numbers_key(tensor.shape), numbers_key(tensor.stride()), strict=True)
                if size != 1]
