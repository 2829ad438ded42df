"""Recurrent layers with dropout between them.   lstm(x, hx, params, layers=2, dropout=0.5)  ->  one call for each layer

AOTAutograd takes such a call apart, and draws the numbers of its dropout in another way than the operator does. A
compiler gets the layers one by one, with a dropout of its own between two of them, as the operator computes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.interp.rule_registry import rule

_NAMES = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


def _layer_by_layer(function: Any) -> Any:
    def call(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        vm.heap.expose_deep(args)
        given = dict(zip(_NAMES, args, strict=False)) | kwargs
        if vm.recorder.in_order or vm.modes or set(given) != set(_NAMES) or not is_dropped_between(given):
            return vm.give(vm.torch_call(function, args, kwargs, asked=True), cont)
        vm.give(layers_of(vm, function, given), cont)
    return call


def is_dropped_between(given: dict[str, Any]) -> bool:
    """Whether the call is of the kind with a plain sequence, and dropout takes part in it."""
    flags = [given[name] for name in ("has_biases", "train", "bidirectional", "batch_first")]
    return given["train"] is True and all(type(flag) is bool for flag in flags) and type(given["num_layers"]) is int \
        and type(given["dropout"]) is float and given["num_layers"] > 1 and given["dropout"] > 0 \
        and type(given["params"]) in (list, tuple) and type(given["input"]) is FakeTensor


def layers_of(vm: Any, function: Any, given: dict[str, Any]) -> tuple[Any, ...]:
    layers, ways = given["num_layers"], 2 if given["bidirectional"] else 1
    states = list(given["hx"]) if type(given["hx"]) in (list, tuple) else [given["hx"]]
    several = type(given["hx"]) in (list, tuple)
    weights = list(given["params"])
    share = len(weights) // layers
    sequence = given["input"]
    if given["batch_first"]:
        sequence = vm.torch_call(torch.Tensor.transpose, (sequence, 0, 1), None)
    ends: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        if layer:
            sequence = vm.torch_call(torch.dropout, (sequence, given["dropout"], True), None)
        begin = [vm.torch_call(torch.Tensor.narrow, (state, 0, layer * ways, ways), None) for state in states]
        own = weights[layer * share:(layer + 1) * share]
        sequence, *end = vm.torch_call(function, (
            sequence, begin if several else begin[0], own, given["has_biases"], 1, 0.0, True, given["bidirectional"],
            False), None)
        for known, new in zip(ends, end, strict=True):
            known.append(new)
    if given["batch_first"]:
        sequence = vm.torch_call(torch.Tensor.transpose, (sequence, 0, 1), None)
    return sequence, *[vm.torch_call(torch.cat, (known, 0), None) for known in ends]


for _function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
    rule(_function)(_layer_by_layer(_function))
