"""Tensors of one known number, beside floats that only the graph knows.   torch.tensor(1.0)  ->  torch.full((), 1.0)

torch's tracers compute with tensors that `torch.tensor` makes of one number, and take a float that they do not know
for NaN: `(torch.tensor(1.0) * f).item()` is NaN in what they compile.  What `torch.full` makes they do not know.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

_DTYPES = frozenset({torch.float64, torch.float32, torch.int64, torch.bool})  # that hold such a number
_MOST = 2**31


def hide_constants(graph: fx.Graph) -> None:
    if not any(type(node.meta.get("example_value")) is torch.SymFloat for node in graph.nodes):
        return
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.tensor and len(node.args) == 1:
            number, made = _number(node.args[0]), node.meta["example_value"]
            if number is not None and made.dtype in _DTYPES and (made.is_floating_point() or type(number) is not float):
                node.target, node.args = torch.full, (tuple(made.shape), number)
                node.kwargs = {**node.kwargs, "dtype": made.dtype, "device": made.device}


def _number(value: Any) -> Any:
    """The one number that a list of lists holds, or None."""
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return value if type(value) in (int, float, bool) and abs(value) < _MOST else None
