"""Rules for recurrent layers and for torch's optimizers.

    lstm(x, hx, params, ...)                    ->  one node, at which compilers cut the graph (docs/training.md)
    torch._disable_dynamo(f)(x)                 ->  f(x): torch marks its own functions for its own tracer
    _group_tensors_by_device_and_dtype(lists)   ->  the groups, from metadata
    torch._foreach_addcdiv_(xs, ys, zs, t)      ->  t's items, each a number of the graph
    torch._fused_adamw_(parameters, ...)        ->  one node, at which compilers cut the graph
    LBFGS.step(closure)                         ->  a graph break: what it computes decides each of its iterations
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._foreach_utils
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import BETTER_CUT, BOUNDARY
from stator.graph.metadata.recurrent_layers import NAMES
from stator.graph.record.refused_operations import FUSED
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation
from stator.interp.rule_registry import code_rule, rule
from stator.interp.vm import VM
from stator.library.torch.packed_sequences import is_packed, packed_layer

C: Any = torch._C
RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


@rule(*RECURRENT)
def _recurrent(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    vm.heap.expose_deep(args)
    if is_packed(args):
        return packed_layer(vm, callee, args)
    given = dict(zip(NAMES, args, strict=False)) | kwargs
    dropped = set(given) == set(NAMES) and is_dropped_between(given)
    if can_be_cut(vm):
        return between_pieces(vm, callee, args, kwargs, dropped or BETTER_CUT)
    if vm.recorder.backend.in_order or vm.modes.active or not dropped:
        return vm.torch_call(callee, args, kwargs, asked=True)
    return layers_of(vm, callee, given)


@rule(*FUSED)
def _fused_update(vm: VM, callee: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """One kernel for all parameters: a compiler would copy them, and refuses the empty list of a state not kept."""
    vm.heap.expose_deep((args, kwargs))
    if type(kwargs.get("lr")) is torch.SymFloat and not vm.modes.active:
        callee, kwargs = rate_as_tensor(vm, callee, kwargs)
    return between_pieces(vm, callee, args, kwargs, True) if can_be_cut(vm) else \
        vm.torch_call(callee, args, kwargs, asked=True)


def rate_as_tensor(vm: VM, callee: Callable[..., object], kwargs: dict[str, object]
                   ) -> tuple[Callable[..., object], dict[str, object]]:
    """The overload that reads the learning rate of a tensor: the other one makes a rate that changes a constant."""
    overload = getattr(getattr(torch.ops.aten, callee.__name__), "tensor_lr", None)
    if overload is None:
        return callee, kwargs
    node = vm.recorder.to_node_arg(kwargs["lr"])
    boxed = node.args[0].meta.get("example_value") if node.target == "item" else None
    if not isinstance(boxed, FakeTensor) or boxed.dtype is not torch.float64:  # computed from numbers of the program
        boxed = vm.torch_call(torch.scalar_tensor, (kwargs["lr"],), {"dtype": torch.float64})
    return overload, {**kwargs, "lr": boxed}


def can_be_cut(vm: VM, with_numbers: bool = False) -> bool:
    """Whether the graph's compiler may get two pieces of it for this call (see autograd_boundaries.require_plain).

    `with_numbers`: a graph of which a number is used on both sides may run uncompiled.
    """
    recorder = vm.recorder
    if recorder.backend.in_order or not (recorder.backend.may_be_cut or torch._C._is_any_autocast_enabled()):
        return False
    return recorder.scope.enclosing is None and not (
        recorder.region.tangents or recorder.region.marks or vm.modes.active or recorder.classes
        or recorder.wrappers.behind or recorder.symbols.has_fresh and not with_numbers)


def between_pieces(vm: VM, function: Callable[..., Any], args: object, kwargs: object, cut: object) -> Any:
    recorder = vm.recorder
    recorder.propagation.require_exact()  # pieces must know which of their inputs share memory
    recorder.region.marks = {BOUNDARY: cut}
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


def _wrapped_for_peer(function: Callable[..., Any]) -> Any:
    """The wrapper that `torch._disable_dynamo` makes; all wrappers share this code."""
    return torch._disable_dynamo(function)


@code_rule(_wrapped_for_peer(_wrapped_for_peer).__code__)
def _look_through(vm: VM, cont: Continuation | None, function: Any, /, *args: object, **kwargs: object) -> None:
    """"Only used inside torch", says torch; what a user disables is marked another way."""
    names = function.__code__.co_freevars
    wrapped = vm.closure_of(function)[names.index("fn")].cell_contents
    vm.call(wrapped.force() if type(wrapped) is Box else wrapped, args, kwargs, cont)


@code_rule(inspect.unwrap(torch.optim.LBFGS.step).__code__)
def _search(vm: VM, cont: Continuation | None, function: object, /, *args: object, **kwargs: object) -> None:
    """Branches on values all the time, over lists that grow: graphs between them cost more than they give."""
    raise Break("SB016", "LBFGS.step, which branches on losses and gradients in each iteration")


@rule(C._group_tensors_by_device_and_dtype)
def _group_tensors(vm: VM, tensors: Any, /, *args: object, **kwargs: object) -> Any:
    """Pure: devices and dtypes decide, and the C function's own order of groups is kept."""
    vm.heap.expose_deep((tensors, *args))
    if not all(part is None or type(part) is FakeTensor for parts in tensors for part in parts):
        raise Break("SB017", "tensors grouped by device and dtype that are no plain tensors")
    with torch._C.DisableTorchFunction():
        return vm.native_unhooked(C._group_tensors_by_device_and_dtype, (tensors, *args), kwargs)


@rule(torch._foreach_addcdiv_, torch._foreach_addcdiv, torch._foreach_addcmul_, torch._foreach_addcmul)
def _with_numbers(vm: VM, callee: object, /, *args: Any, **kwargs: object) -> Any:
    """A tensor of scalars must be on the CPU, where its values are read one by one."""
    scalars: Any = args[3] if len(args) > 3 else kwargs.get("scalars")
    if type(scalars) is FakeTensor and scalars.dim() == 1 and scalars.device.type == "cpu":
        parts = vm.torch_call(torch.Tensor.unbind, (scalars,), None)
        numbers = [vm.torch_call(torch.Tensor.item, (part,), None) for part in parts]
        args, kwargs = (*args[:3], numbers), {}
    elif len(args) > 3 and is_a(args[3], (list, tuple)):
        vm.heap.expose_deep(args[3])
        numbers = [vm.torch_call(torch.Tensor.item, (part,), None) if type(part) is FakeTensor else part
                   for part in args[3]]
        args = (*args[:3], numbers)
    return vm.torch_call(callee, args, kwargs)
