"""Results of recurrent layers by rule.   torch.lstm(x, ...)  ->  fakes like its results, without its steps

Sizes, dtypes and devices of all weights are compared with what the layer needs; otherwise FakeTensor decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from stator.graph.metadata.layout_rules import DEVICES, FLOATS, Unsure, require

NAMES = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
_GATES = {id(torch.lstm): 4, id(torch.gru): 3, id(torch.rnn_tanh): 1, id(torch.rnn_relu): 1}


def results_of_layer(function: Callable[..., Any], args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Fakes like the results of a recurrent layer, without its steps; None where no rule is sure."""
    gates = _GATES.get(id(function))
    try:
        return None if gates is None else _results_of_layer(gates, args, kwargs)
    except Unsure:
        return None


def _results_of_layer(gates: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    require(len(args) <= len(NAMES) and set(given) == set(NAMES))
    sequence, weights, states = given["input"], given["params"], given["hx"] if gates == 4 else [given["hx"]]
    flags = [given[name] for name in ("has_biases", "train", "bidirectional", "batch_first")]
    require(all(type(flag) is bool for flag in flags) and type(given["num_layers"]) is int and given["num_layers"] >= 1
            and all(type(each) in (list, tuple) for each in (states, weights)))
    tensors = [sequence, *states, *weights]
    require(all(type(each) is FakeTensor for each in tensors) and all(each.dim() == 3 for each in (sequence, *states)))
    require(sequence.dtype in FLOATS and sequence.device.type in DEVICES and sequence.layout is torch.strided
            and all((one.dtype, one.device, one.layout) == (other.dtype, other.device, other.layout)
                    for one, other in pairwise(tensors)) and not torch.is_autocast_enabled(sequence.device.type))
    ways = 2 if given["bidirectional"] else 1
    layers = given["num_layers"] * ways
    batch, time = (0, 1) if given["batch_first"] else (1, 0)
    hidden, width = states[-1].size(2), states[0].size(2)  # the state that is kept, and the one that is handed on
    sizes: list[tuple[Any, ...]] = []  # of all weights, layer by layer and way by way
    for number in range(layers):
        sizes += [(gates * hidden, sequence.size(2) if number < ways else width * ways), (gates * hidden, width)]
        sizes += [(gates * hidden,), (gates * hidden,)] if given["has_biases"] else []
        sizes += [(width, hidden)] if gates == 4 and not _same(hidden, width) else []
    sizes += [(layers, sequence.size(batch), state.size(2)) for state in states]
    require(_same([tuple(each.shape) for each in (*weights, *states)], sizes)
            and all(statically_known_true(sequence.size(dim) >= 1) for dim in (0, 1)))
    made = LayerResults.apply(  # type: ignore[no-untyped-call]
        (sequence.size(time), sequence.size(batch), width * ways), [tuple(state.shape) for state in states],
        sequence, *states, *weights)
    return (made[0].transpose(0, 1) if given["batch_first"] else made[0], *made[1:])


def _same(one: Any, other: Any) -> bool:
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one is other or statically_known_true(one == other)


class LayerResults(torch.autograd.Function):
    """New tensors that want gradients if one of the arguments does."""

    @staticmethod
    def forward(ctx: Any, size: Sequence[int], ends: Sequence[Any], sequence: torch.Tensor, *others: torch.Tensor
                ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(sequence)
        ctx.given = [(each.shape, each.requires_grad) for each in (sequence, *others)]
        return (sequence.new_empty(size), *[sequence.new_empty(end) for end in ends])

    @staticmethod
    def backward(ctx: Any, *grads: object) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError("twice through a recurrent layer")
        sequence, = ctx.saved_tensors
        return None, None, *[sequence.new_empty(shape) if wanted else None for shape, wanted in ctx.given]
