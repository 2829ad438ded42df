"""Rules for torch.autograd.Variable, and for tensors that Module.to() exchanges.   Variable(x)  ->  x.detach()"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.interp.noted_effects import note_warning
from stator.interp.objects.attributes import tensor_class
from stator.interp.rule_registry import rule
from stator.interp.tensors.tensor_bookkeeping import set_requires_grad
from stator.interp.vm import VM

_VOLATILE = "volatile was removed and now has no effect. Use `with torch.no_grad():` instead."
DETACH: Any = torch.Tensor.detach  # type: ignore[attr-defined]


@rule(torch.autograd.Variable, unasked=True)
def _variable(vm: VM, data: torch.Tensor = None, requires_grad: object = False,
              volatile: object = False, _grad_fn: object = None, name: object = None) -> torch.Tensor:
    """Detach a tensor; the new one may require grad."""
    if not {type(requires_grad), type(volatile)} <= {bool, int} or not is_plain(vm, data) or (_grad_fn, name) != (
            None, None) or requires_grad and (volatile or not (data.is_floating_point() or data.is_complex())):
        raise Break("SB001", "Variable() of something else than a tensor and flags")
    if volatile:
        note_warning(vm, _VOLATILE, UserWarning)
    made: torch.Tensor = vm.torch_call(DETACH, (data,), None)
    if requires_grad:
        set_requires_grad(vm, made, True)
    return made


def is_plain(vm: VM, value: torch.Tensor) -> TypeGuard[torch.Tensor]:
    return type(value) is FakeTensor and value.layout is torch.strided \
        and tensor_class(vm, value) in (torch.Tensor, torch.nn.Parameter)


@rule(torch._has_compatible_shallow_copy_type)
def _can_share_data(vm: VM, tensor: torch.Tensor, other: torch.Tensor, /) -> bool:
    """Whether torch lets `tensor.data = other` be: of dense tensors always."""
    if not all(is_plain(vm, each) and each.device.type in ("cpu", "cuda") for each in (tensor, other)):
        raise Break("SB005", "whether two tensors that are not dense can share their data")
    return True
