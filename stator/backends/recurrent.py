"""Compile LSTMs that learn.   a graph with an LSTM and inputs that want gradients  ->  oneDNN off while it is compiled

AOTAutograd takes an LSTM apart by a rule that picks oneDNN's kernel for inference whenever the *sequence* needs no
gradient, though the weights may; the graph then fails when it runs. Without oneDNN the rule picks the other way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch


@contextlib.contextmanager
def trainable_lstm(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], grad_enabled: bool) -> Iterator[None]:
    """Turn oneDNN off around the compilation of a graph that would hit the rule."""
    wants_grad = grad_enabled and any(isinstance(t, torch.Tensor) and t.requires_grad for t in example_inputs)
    if not wants_grad or not any(node.target in _LSTM for node in gm.graph.nodes):
        yield
        return
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


_LSTM = frozenset({torch.lstm, torch._VF.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data})
