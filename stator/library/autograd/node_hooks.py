"""Hooks on nodes of autograd.   y.grad_fn.register_hook(f), module.register_backward_hook(f)

In: the node behind a tensor of the graph.  Out: a node of the graph that registers the hook on the real one.  Only a
backend that runs the nodes in order has the same nodes of autograd as eager; for others the call breaks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch.nn.modules.module import _WrappedHook
from torch.utils.hooks import RemovableHandle

from stator import _hook
from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import boundary
from stator.heap.pure_readers import referent_of
from stator.heap.raw_access import instance_dict
from stator.interp import noted_effects
from stator.interp.rule_registry import LISTED, rule
from stator.interp.vm import VM
from stator.library.autograd.autograd_hooks import Hook, outside_callable

_WHAT = "a hook on a grad_fn"
_CLASSES = [cls for cls in vars(torch._C._functions).values() if isinstance(cls, type)]


@boundary
def register_on_node(tensor: torch.Tensor, hook: Callable[..., object]) -> None:
    assert tensor.grad_fn is not None
    tensor.grad_fn.register_hook(hook)


@rule(*[vars(cls)["register_hook"] for cls in _CLASSES if "register_hook" in vars(cls)])
def _register(vm: VM, node: object, hook: object, /) -> object:
    recorder, known = vm.recorder, vm.autograd.nodes.get(id(node))
    if known is None:
        return LISTED
    if not recorder.backend.in_order or recorder.scope.enclosing is not None or recorder.region.tangents \
            or recorder.region.marks or recorder.wrappers.behind:
        raise Break("SB016", _WHAT)
    tensor = known[1]
    with torch._C.DisableTorchFunction():
        if tensor.grad_fn is not node:
            raise Break("SB016", f"{_WHAT} that is not the one of its tensor any more")
    made = recorder.record("call_function", register_on_node, (tensor, outside_hook(vm, hook)), {}, None)
    handle = object.__new__(RemovableHandle)
    vm.autograd.hooks[id(handle)] = (handle, Hook("register_hook", tensor, hook, 0, made, True))
    return handle


def outside_hook(vm: VM, hook: object) -> object:
    """The function that autograd calls later; torch wraps those of modules, with a weak reference to the module."""
    if type(hook) is not _WrappedHook:
        return outside_callable(vm, _WHAT, hook, vm.autograd.hook_cells, lasting=True)
    own = instance_dict(hook) or {}
    function = outside_callable(vm, _WHAT, own.get("hook"), vm.autograd.hook_cells, lasting=True)
    if not own.get("with_module"):
        return _WrappedHook(function)  # type: ignore[call-arg]
    tracker = vm.heap.tracker_of(referent_of(own["module"]))
    if tracker is None:
        raise Break("SB016", f"{_WHAT}, of a module made inside the captured code")
    vm.guard_identity(tracker.standin)
    return _WrappedHook(function, tracker.original)  # type: ignore[call-arg]


@rule(torch.nn.Module._maybe_warn_non_full_backward_hook)
def _maybe_warn(vm: VM, self: object, inputs: object, result: object, grad_fn: object) -> None:
    """Let torch compare the nodes of the fakes, which are linked as the real ones are, and keep its warnings."""
    known = vm.autograd.nodes.get(id(grad_fn))
    if known is None:
        raise Break("SB016", _WHAT)
    vm.heap.expose_deep((inputs, result))
    token = _hook.pause()
    try:
        with warnings.catch_warnings(record=True) as found, torch._C.DisableTorchFunction():
            warnings.simplefilter("always")
            torch.nn.Module._maybe_warn_non_full_backward_hook(None, inputs, result, grad_fn)  # type: ignore[arg-type]
    finally:
        _hook.resume(token)
    for each in found:
        noted_effects.note_warning(vm, str(each.message), each.category)
