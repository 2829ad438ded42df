"""Hooks on tensors.   y.register_hook(f)

An outside tensor gets its hook when the graph has run.  A hook on a tensor of the graph is interpreted once, on a fake
gradient, and one node registers its graph.  A hook with effects is registered itself, by a node at which compilers cut
the graph: autograd calls it behind the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import RemovableHandle

from stator.breaks import Break, Strategy
from stator.graph.analysis import autograd_boundaries as boundaries
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.autograd.autograd_hooks import Hook, outside_callable, register_graph
from stator.library.autograd.backward_code import hook_ahead
from stator.library.autograd.gradients import require_plain
from stator.library.torch.higher_order_operators import modules_of

_WHAT = "a hook on a tensor of the graph"
_register_hook = torch.Tensor.register_hook


@rule(torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)
def _register(vm: VM, callee: Any, self: Any, hook: Any) -> Any:
    if type(self) is not FakeTensor:
        raise Break("SB016", f"{callee.__name__} with other arguments than a tensor and a function")
    with torch._C.DisableTorchFunction():
        wants_grad, leaf, version = self.requires_grad, self.is_leaf, self._version
    tracker = vm.heap.by_standin.get(id(self))
    accumulates = callee is torch.Tensor.register_post_accumulate_grad_hook
    if not wants_grad or accumulates and not leaf:
        vm.native_unhooked(callee, (self, lambda grad: None))  # raises what eager raises
    registered = Hook(callee.__name__, self, hook, version)
    if tracker is None:
        if accumulates:
            raise Break("SB016", "a hook on the gradient of a leaf made inside the captured code")
        registered.on_node = Strategy.HOOK_GRAPHS in vm.turned_off
        register = registered_natively if registered.on_node else registered_in_graph
        registered.node = register(vm, self, hook)
    elif vm.recorder.scope.enclosing is not None or version:
        raise Break("SB016", "a hook on a tensor that was changed in place, or inside an inner graph")
    handle = object.__new__(RemovableHandle)
    vm.autograd.hooks[id(handle)] = (handle, registered)
    return handle


def registered_in_graph(vm: VM, fake: FakeTensor, function: Callable[..., Any]) -> fx.Node:
    try:
        part = hook_ahead(vm, fake, function)
    except Break as why:
        why.stop.turn_off = why.stop.turn_off or Strategy.HOOK_GRAPHS
        raise
    modules, operands = modules_of(part)
    return vm.recorder.record("call_function", register_graph, (fake, modules[0], operands), {}, None)


@boundaries.boundary
def register_itself(tensor: torch.Tensor, hook: Callable[..., object]) -> RemovableHandle | None:
    return _register_hook(tensor, hook) if tensor.requires_grad else None  # past patches of the program


def registered_natively(vm: VM, fake: FakeTensor, function: object) -> fx.Node:
    """The hook sees the gradient of each use behind this node: no compiler gets a graph with an earlier use."""
    recorder = vm.recorder
    require_plain(vm, _WHAT)
    hook = outside_callable(vm, _WHAT, function, vm.autograd.hook_cells, lasting=True)
    if any(map(boundaries.wants_grad, recorder.node_of(fake).users)):
        recorder.keep_as_it_is()
    recorder.log.changes += 1
    return recorder.record("call_function", register_itself, (fake, hook), {}, None)
