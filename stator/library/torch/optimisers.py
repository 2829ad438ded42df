"""Rules for what torch's optimisers and gradient clipping call.   opt.zero_grad(), clip_grad_norm_(...), opt.step()

    torch._disable_dynamo(f)(x)                 ->  f(x): torch marks its own functions for its own tracer
    _group_tensors_by_device_and_dtype(lists)   ->  the groups, from metadata
    torch._foreach_addcdiv_(xs, ys, zs, t)      ->  t's items, each a number of the graph
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._foreach_utils
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.box import Box
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import code_rule, rule
from stator.interp.vm import VM

C: Any = torch._C


def _wrapped_for_peer(function: Callable[..., Any]) -> Any:
    """What `torch._disable_dynamo` makes of a function; every result shares this code."""
    return torch._disable_dynamo(function)


@code_rule(_wrapped_for_peer(_wrapped_for_peer).__code__)
def _look_through(vm: VM, cont: Any, function: Any, /, *args: Any, **kwargs: Any) -> None:
    """"Only used inside torch", says torch; what a user disables is marked another way."""
    names = function.__code__.co_freevars
    wrapped = vm.closure_of(function)[names.index("fn")].cell_contents
    vm.call(wrapped.force() if type(wrapped) is Box else wrapped, args, kwargs, cont)


@rule(C._group_tensors_by_device_and_dtype)
def _group_tensors(vm: VM, tensors: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Pure: devices and dtypes decide, and the C function's own order of groups is kept."""
    vm.heap.expose_deep((tensors, *args))
    if not all(part is None or type(part) is FakeTensor for parts in tensors for part in parts):
        raise Break("SB017", "tensors grouped by device and dtype that are no plain tensors")
    with torch._C.DisableTorchFunction():
        return vm.native_unhooked(C._group_tensors_by_device_and_dtype, (tensors, *args), kwargs)


@rule(torch._foreach_addcdiv_, torch._foreach_addcdiv, torch._foreach_addcmul_, torch._foreach_addcmul)
def _with_numbers(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A tensor of scalars must be on the CPU, where its values are read one by one."""
    scalars = args[3] if len(args) > 3 else kwargs.get("scalars")
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
