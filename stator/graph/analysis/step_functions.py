"""Functions that the graph of a train step calls.   loss.backward(), scaler.step(optimizer)

In: losses, leaves, hooks of modules as graphs; counts of infinite gradients.  Out: gradients, or an error of a check.
Sparse gradients: a leaf gets a tensor of its own on their indices and values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from stator.graph.analysis.autograd_boundaries import AccumulateGrad, boundary, functions_behind
from stator.host.hook_handles import handle_numbers_kept


class NotFinite(RuntimeError):
    """The check of a GradScaler fails: the optimizer must not step."""


@boundary
def require_finite(found: list[torch.Tensor]) -> None:
    """Go on where GradScaler has counted no gradient that is infinite or nan."""
    if sum([each.item() for each in found]):
        raise NotFinite("stator assertion: GradScaler found gradients that are not finite")


def gradients_without_hooks(outputs: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """torch.autograd.grad of leaves whose hooks the graph has as nodes of its own."""
    held = [(each._backward_hooks, dict(each._backward_hooks)) for each in inputs if each._backward_hooks]
    try:
        for hooks, _ in held:
            hooks.clear()
        return torch.autograd.grad(outputs, inputs, *args, **kwargs)
    finally:
        for hooks, functions in held:
            hooks.update(functions)


def without_anomaly_mode() -> contextlib.AbstractContextManager[object]:
    return torch.autograd.set_detect_anomaly(False) if torch.is_anomaly_enabled() else contextlib.nullcontext()


def gradients_in_anomaly_mode(outputs: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """The same with a check for nan behind each function; autograd itself warns where the call is made again."""
    functions = [each for each in functions_behind(outputs) if type(each) is not AccumulateGrad] \
        if torch.is_anomaly_check_nan_enabled() else []
    with without_anomaly_mode(), handle_numbers_kept():
        handles = [each.register_hook(require_numbers) for each in functions]
        try:
            return gradients_without_hooks(outputs, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()


@torch.no_grad()
def require_numbers(found: Sequence[torch.Tensor | None], _: object) -> None:
    if any(each is not None and bool(each.isnan().any()) for each in found):
        raise RuntimeError("stator assertion: a function of autograd returned nan, in anomaly mode")


ModuleHookCall = tuple[BackwardHook, str, bool, Callable[..., Any], tuple[Any, ...], tuple[int, ...], int,
                       tuple[tuple[str, int], ...]]


@boundary
def gradients_beside_modules(outputs: object, inputs: Sequence[Any], seeds: object, calls: Sequence[ModuleHookCall],
                             **kwargs: Any) -> tuple[Any, ...]:
    """The same where modules have hooks, whose graphs run in the pass; the tensors made by these follow."""
    made: list[Any] = []
    waiting = list(reversed(calls))
    watches = {id(call[0]): call[0] for call in calls}
    kept = {key: (watch.user_hooks, watch.user_pre_hooks, watch.input_tensors_index) for key, watch in watches.items()}

    def run(watch: BackwardHook, side: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if not waiting or waiting[-1][0] is not watch or waiting[-1][1] != side:
            raise RuntimeError("hooks of modules are called in another order than in the capture")
        *_, graph, operands, places, taken, plan = waiting.pop()
        made.extend(graph(*[given[place] for place in places], *made[:taken], *operands))
        return tuple([given[place] if kind == "given" else made[place] if kind == "made" else None
                      for kind, place in plan])

    for watch in watches.values():
        watch.user_hooks, watch.user_pre_hooks = [], []
    for watch, side, without_inputs, *_ in calls:
        if side == "after":
            watch.user_hooks = [lambda _, into, grads, own=watch: run(own, "after", (*into, *grads))]
        else:
            watch.user_pre_hooks = [lambda _, grads, own=watch: run(own, "before", grads)]
        if without_inputs:  # the graph has the call of its hooks, and the residual the warning
            watch.input_tensors_index = ()
    try:
        found = gradients_without_hooks(outputs, inputs, seeds, **kwargs)
    finally:
        for key, watch in watches.items():
            watch.user_hooks, watch.user_pre_hooks, watch.input_tensors_index = kept[key]
            watch.grad_outputs = None
    if waiting:
        raise RuntimeError("hooks of modules are not called as in the capture")
    return *found, *made


def own_sparse_gradient(new: torch.Tensor) -> torch.Tensor:
    """As AccumulateGrad makes a first gradient: on the same indices and values, not coalesced."""
    indices, values = new._indices(), new._values()
    if not indices.is_contiguous() or not values.is_contiguous():
        return new.clone()
    return torch.ops.aten._sparse_coo_tensor_unsafe(
        indices, values, new.shape, dtype=new.dtype, layout=new.layout, device=new.device)


own_sparse_gradient.never_fails = True  # type: ignore[attr-defined]

GRADIENTS = (torch.autograd.grad, gradients_without_hooks, gradients_beside_modules, gradients_in_anomaly_mode)
