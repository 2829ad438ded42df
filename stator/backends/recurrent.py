"""Compile LSTMs that learn.   a graph with an LSTM and inputs that want gradients  ->  oneDNN off while it is compiled

AOTAutograd takes an LSTM apart by a rule that picks oneDNN's kernel for inference whenever the *sequence* needs no
gradient, though the weights may; the graph then fails when it runs. Without oneDNN the rule picks the other way, whose
last states have a dimension too many in torch 2.11.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decompositions


@contextlib.contextmanager
def trainable_lstm(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], grad_enabled: bool) -> Iterator[None]:
    """Turn oneDNN off around the compilation of a graph that would hit the rule."""
    wants_grad = grad_enabled and any(isinstance(t, torch.Tensor) and t.requires_grad for t in example_inputs)
    if not wants_grad or not any(node.target in _LSTM for node in gm.graph.nodes):
        yield
        return
    enabled, one_layer = torch._C._get_mkldnn_enabled(), decompositions.one_layer_lstm
    torch._C._set_mkldnn_enabled(False)
    decompositions.one_layer_lstm = _with_states_as_given(one_layer)
    try:
        yield
    finally:
        decompositions.one_layer_lstm = one_layer
        torch._C._set_mkldnn_enabled(enabled)


def _with_states_as_given(one_layer: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of one layer, whose last states have the shapes of the first."""
    def layer(sequence: object, hidden: Any, *rest: object, **options: object) -> Any:
        out, last = one_layer(sequence, hidden, *rest, **options)
        return out, tuple(state.reshape(first.shape) for state, first in zip(last, hidden, strict=True))
    return layer


_LSTM = frozenset({torch.lstm, torch._VF.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data})
