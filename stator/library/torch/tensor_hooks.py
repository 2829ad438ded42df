"""Rules for hooks on tensors.   x.register_hook(f)  ->  registered by the residual, or part of the graph

A tensor from outside gets its hook when the graph has run: a hook only matters to a backward pass that comes later.
On a tensor of the graph's own the hook must be in the graph, where a compiler finds it: it is interpreted once, on a
fake gradient, and one node registers the graph of it.  A hook of that kind with effects breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import has_side_effect
from torch.utils.hooks import RemovableHandle

from stator.breaks import Break
from stator.graph.state.torch_state import without_grad
from stator.interp.rule_registry import INTERPRETED, rule
from stator.interp.vm import VM
from stator.library.torch.higher_order_operators import interpreted, modules_of


@dataclass(eq=False)
class Hook:
    """A hook that the trace has registered."""

    method: str
    tensor: Any
    function: Any
    version: int = 0  # of an outside tensor: a hook belongs to the value it was registered on
    node: Any = None  # of the graph, where the tensor is its own


@rule(torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)
def _register(vm: VM, callee: Any, self: Any, hook: Any) -> Any:
    if type(self) is not FakeTensor:
        raise Break("SB016", f"{callee.__name__} with other arguments than a tensor and a function")
    with torch._C.DisableTorchFunction():
        wants_grad, leaf, version = self.requires_grad, self.is_leaf, self._version
    tracker = vm.heap.by_standin.get(id(self))
    accumulates = callee is torch.Tensor.register_post_accumulate_grad_hook
    if not wants_grad or accumulates and not leaf:
        vm.native_unhooked(callee, (self, _unused))  # raises what eager raises
    registered = Hook(callee.__name__, self, hook, version)
    if tracker is None:
        if accumulates:
            raise Break("SB016", "a hook on the gradient of a leaf made inside the captured code")
        registered.node = registered_in_graph(vm, self, hook)
    elif vm.recorder.scope.enclosing is not None or version:
        raise Break("SB016", "a hook on a tensor that was changed in place, or inside an inner graph")
    handle = object.__new__(RemovableHandle)
    vm.autograd.hooks[id(handle)] = (handle, registered)
    return handle


def _unused(grad: object) -> None:
    return None


@rule(RemovableHandle.remove)
def _remove(vm: VM, self: Any) -> Any:
    known = vm.autograd.hooks.get(id(self))
    if known is None:
        return INTERPRETED
    handle, hook = known
    if hook is not None and hook.node is not None:
        hook.node.graph.erase_node(hook.node)
    vm.autograd.hooks[id(handle)] = (handle, None)  # removing it again does nothing
    return None


# ---------------------------------------------------------------------- hooks in the graph


def register_graph(tensor: Any, graph: Any, operands: tuple[Any, ...]) -> None:
    """The operation: `graph` is what a hook computes from a gradient and tensors of the forward pass."""
    if _requires_grad(tensor):
        _register_hook(tensor, lambda grad: graph(grad, *operands))  # past patches of the program


_requires_grad, _register_hook = torch._C.TensorBase.requires_grad.__get__, torch.Tensor.register_hook
has_side_effect(register_graph)


def registered_in_graph(vm: VM, fake: FakeTensor, function: Callable[..., Any]) -> Any:
    """The node that registers what the hook computes."""
    what = "a hook on a tensor"
    with torch._C.DisableTorchFunction():
        grad = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    with without_grad(vm.torch_state):
        part, result = interpreted(vm, what, function, [grad], ())  # backward() runs hooks without gradients
    with torch._C.DisableTorchFunction():
        if grad._version:
            raise Break("SB016", f"{what} that changes the gradient in place")
        result = grad if result is None else result
        if type(result) is not FakeTensor:
            raise Break("SB016", f"{what} that returns a {type(result).__name__}")
        if (result.shape, result.dtype, result.device) != (grad.shape, grad.dtype, grad.device):
            raise Break("SB016", f"{what} that returns a tensor of another kind than the gradient")
    with part.reopened():
        part.finish([result], single=True)
    modules, operands = modules_of(part)
    return vm.recorder.record("call_function", register_graph, (fake, modules[0], operands), {}, None)
