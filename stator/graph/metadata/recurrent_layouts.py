"""What recurrent layers return, without running through their sequence.

    torch.gru(float32[T, B, 8], ...)  ->  float32[T, B, 16], float32[2, B, 16]

In: a call on fakes.  Out: fakes like torch's own results, or None where the call is not of the everyday kind and torch
has to say.  Torch's rule for fakes takes such a call apart step by step, which takes its time, and makes the length of
the sequence a constant: a program with sequences of many lengths would be compiled for each.

tests/torch_api/test_recurrent.py puts these beside real tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

NAMES = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
# By id: what a program calls need not have a hash.
_GATES = {id(torch.lstm): 4, id(torch.gru): 3, id(torch.rnn_tanh): 1, id(torch.rnn_relu): 1}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def results_of_layer(function: Callable[..., Any], args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The results of a recurrent layer on fakes; None where torch has to be asked."""
    gates = _GATES.get(id(function))
    if gates is None or len(args) > len(NAMES):
        return None
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    if set(given) != set(NAMES):
        return None
    states = given["hx"] if function is torch.lstm else [given["hx"]]
    if not _is_everyday(given, states):
        return None
    sequence, weights, ways = given["input"], given["params"], 2 if given["bidirectional"] else 1
    layers = given["num_layers"] * ways
    batch, time = (0, 1) if given["batch_first"] else (1, 0)
    hidden, width = states[-1].size(2), states[0].size(2)  # the state that is kept, and the one that is handed on
    share = _weights_of_a_layer(gates, hidden, width, given["has_biases"], sequence.size(2), ways, given["num_layers"])
    expected = [*share, *((layers, sequence.size(batch), state.size(2)) for state in states)]
    found = [tuple(each.shape) for each in (*weights, *states)]
    if not _same(found, expected) or not all(statically_known_true(sequence.size(dim) >= 1) for dim in (0, 1)):
        return None
    made = _Layer.apply(  # type: ignore[no-untyped-call]
        (sequence.size(time), sequence.size(batch), width * ways), [tuple(state.shape) for state in states],
        sequence, *states, *weights)
    return (made[0].transpose(0, 1) if given["batch_first"] else made[0], *made[1:])


def _is_everyday(given: dict[str, Any], states: Any) -> bool:
    flags = [given[name] for name in ("has_biases", "train", "bidirectional", "batch_first")]
    if not all(type(flag) is bool for flag in flags) or type(given["num_layers"]) is not int \
            or given["num_layers"] < 1 or not all(type(each) in (list, tuple) for each in (states, given["params"])):
        return False
    tensors = [given["input"], *states, *given["params"]]
    if not all(type(each) is FakeTensor for each in tensors) or given["input"].dim() != 3 \
            or not all(state.dim() == 3 for state in states):
        return False
    first = given["input"]
    return first.dtype in _FLOATS and first.device.type in ("cpu", "cuda") and first.layout is torch.strided \
        and all((one.dtype, one.device, one.layout) == (other.dtype, other.device, other.layout)
                for one, other in pairwise(tensors)) \
        and not torch.is_autocast_enabled(first.device.type)


def _weights_of_a_layer(gates: int, hidden: Any, width: Any, biased: bool, features: Any, ways: int, layers: int
                        ) -> list[tuple[Any, ...]]:
    """The sizes of all weights, layer by layer and way by way."""
    sizes: list[tuple[Any, ...]] = []
    for layer in range(layers):
        for _ in range(ways):
            sizes += [(gates * hidden, features if layer == 0 else width * ways), (gates * hidden, width)]
            sizes += [(gates * hidden,), (gates * hidden,)] if biased else []
            sizes += [(width, hidden)] if gates == 4 and not _same(hidden, width) else []
    return sizes


def _same(one: Any, other: Any) -> bool:
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one is other or statically_known_true(one == other)


class _Layer(torch.autograd.Function):
    """New tensors that want gradients if one of the arguments does."""

    @staticmethod
    def forward(ctx: object, size: Sequence[int], ends: Any, sequence: Any, *others: object) -> tuple[Any, ...]:
        return (sequence.new_empty(size), *[sequence.new_empty(end) for end in ends])

    @staticmethod
    def backward(ctx: object, *grads: object) -> Any:
        raise AssertionError("a tensor that stands for another has no gradients")
