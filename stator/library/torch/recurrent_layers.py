"""Recurrent layers.   lstm(x, hx, params, ...)  ->  one node, which compilers are spared

AOTAutograd takes such a call apart into a dozen operations for each step of the sequence: 50 steps take minutes to
compile, and are then slower than oneDNN's or cuDNN's kernel. So the call is an autograd boundary (see
graph/autograd/autograd_boundaries), run as it is between two compiled pieces. A compiler of the user's gets the whole
graph, but under autocast, where AOTAutograd's parts compute in other dtypes than the operator. It also draws the
numbers of a dropout in another way: to such a compiler layers with dropout between them are handed over one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.autograd.autograd_boundaries import BETTER_CUT
from stator.graph.metadata.recurrent_layouts import NAMES
from stator.interp.rule_registry import rule
from stator.interp.vm import VM


@rule(torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
def _recurrent(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    vm.heap.expose_deep(args)
    if can_be_cut(vm):
        return between_pieces(vm, callee, args, kwargs)
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    if vm.recorder.backend.in_order or vm.modes.active or set(given) != set(NAMES) or not is_dropped_between(given):
        return vm.torch_call(callee, args, kwargs, asked=True)
    return layers_of(vm, callee, given)


def can_be_cut(vm: VM) -> bool:
    """Whether the graph's compiler may get two pieces of it for this call (see autograd_boundaries.require_plain)."""
    recorder = vm.recorder
    if recorder.backend.in_order or not (recorder.backend.may_be_cut or torch._C._is_any_autocast_enabled()):
        return False
    return recorder.scope.enclosing is None and not (
        recorder.region.tangents or recorder.region.marks or vm.modes.active or recorder.classes
        or recorder.wrappers.behind or recorder.symbols.has_fresh)


def between_pieces(vm: VM, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    recorder = vm.recorder
    recorder.propagation.require_exact()  # pieces must know which of their inputs share memory
    recorder.region.marks = {"is_seam": BETTER_CUT}
    try:
        return vm.torch_call(function, args, kwargs, asked=True)
    finally:
        recorder.region.marks = {}


def is_dropped_between(given: dict[str, Any]) -> bool:
    """Whether the call is of the kind with a plain sequence, and dropout takes part in it."""
    flags = [given[name] for name in ("has_biases", "train", "bidirectional", "batch_first")]
    return given["train"] is True and all(type(flag) is bool for flag in flags) and type(given["num_layers"]) is int \
        and type(given["dropout"]) is float and given["num_layers"] > 1 and given["dropout"] > 0 \
        and type(given["params"]) in (list, tuple) and type(given["input"]) is FakeTensor


def layers_of(vm: VM, function: object, given: dict[str, Any]) -> tuple[Any, ...]:
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
