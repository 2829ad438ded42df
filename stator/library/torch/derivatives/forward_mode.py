"""Rules for forward-mode differentiation.   with dual_level(): make_dual(x, t) ... unpack_dual(y)  ->  nodes

The trace enters the level for real, so that autograd itself says which of its fakes have tangents; the Python of
torch.autograd.forward_ad is interpreted.  A level must be left in the trace that has entered it: what stops the trace
before that turns this way of capturing off, and entering the level breaks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch import predispatch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.node import has_side_effect

from stator.breaks import Break
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.strategy import Strategy

FORWARD = Strategy.FORWARD_MODE

C: Any = torch._C
# What forward_ad calls: up to torch 2.11, the C functions themselves.
ENTER = getattr(predispatch, "_enter_dual_level", C._enter_dual_level)
EXIT = getattr(predispatch, "_exit_dual_level", C._exit_dual_level)
MAKE = getattr(predispatch, "_make_dual", torch._VF._make_dual)
UNPACK = getattr(predispatch, "_unpack_dual", torch._VF._unpack_dual)
has_side_effect(ENTER)
has_side_effect(EXIT)


def require_known(vm: VM) -> None:
    """Tangents are on the fakes themselves: no remembered result, and no stand-in of another kind, has any."""
    recorder = vm.recorder
    if FORWARD in vm.turned_off or recorder.scope.enclosing is not None or vm.modes.active or recorder.classes \
            or recorder.wrappers.behind or torch.is_inference_mode_enabled():
        raise Break("SB016", FORWARD)
    recorder.propagation.require_exact()


@rule(ENTER)
def _enter(vm: VM) -> int:
    require_known(vm)
    try:
        level = C._enter_dual_level()
    except Exception as error:  # there is one already
        raise Raised(error) from None
    vm.autograd.dual_levels.append(level)
    vm.recorder.region.tangents = vm.torch_state.dual_levels = True
    vm.recorder.record("call_function", ENTER, (), {}, None)
    return level


@rule(EXIT)
def _exit(vm: VM, level: Any) -> None:
    if not vm.autograd.dual_levels or type(level) is not int or level != vm.autograd.dual_levels[-1]:
        raise Break("SB016", f"leaving a level of {FORWARD} that was not entered here")
    C._exit_dual_level(level=vm.autograd.dual_levels.pop())
    vm.recorder.region.tangents = bool(vm.autograd.dual_levels)
    vm.recorder.record("call_function", EXIT, (), {"level": level}, None)


def require_left(vm: VM) -> None:
    if vm.autograd.dual_levels:
        raise Break("SB016", f"{FORWARD} is still on at the end of the call")


@rule(forward_ad._maybe_load_decompositions)
def _load(vm: VM) -> None:
    with C.DisableTorchFunction():
        forward_ad._maybe_load_decompositions()  # once in a process


@rule(MAKE, UNPACK)
def _on_tensors(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    if not vm.autograd.dual_levels:
        raise Break("SB016", f"{FORWARD}, entered before the call")
    if any(type(value) is not FakeTensor for value in args):
        raise Break("SB016", f"{FORWARD} of what is no tensor")
    return vm.torch_call(callee, args, kwargs)
