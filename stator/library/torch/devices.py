"""Rules for what a program asks of its devices: how many there are, what they can do, which one is current.

What a device can do never changes while the process lives; how many there are and which is current are guarded by the
answer.  Making another device the current one, waiting for a device and streams are left to breaks: the compiled
segments around them run on whatever device and stream are current then.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.breaks import Break
from stator.guards.guard import Kind, is_constant
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned

C: Any = torch._C


def _answer(function: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_constant(args) or not is_constant(tuple(kwargs.values())):
        raise Break("SB001", f"torch.cuda.{function.__name__} of what is no constant")
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise Raised(error) from None


@rule(torch.cuda.device_count)
def _device_count(vm: VM) -> int:
    count = _answer(torch.cuda.device_count)
    vm.heap.guard(CallOf(Pinned(torch.cuda.device_count)), Kind.FRESH_CALL, count)
    return count


@rule(torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.cuda.is_bf16_supported,
      torch.cuda.get_arch_list)
def _ask(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A fact of one device, which is the current one unless it is named."""
    if not torch.cuda.is_initialized():  # the question itself would start the driver
        raise Break("SB013", f"torch.cuda.{callee.__name__} before any tensor was on a GPU")
    named = (*args, *kwargs.values())
    if not named or named[0] is None:
        vm.heap.guard(CallOf(Pinned(torch.cuda.current_device)), Kind.FRESH_CALL, torch.cuda.current_device())
    return _answer(callee, *args, **kwargs)


_SWITCHES = [getattr(C, name) for name in ("_cuda_exchangeDevice", "_cuda_maybeExchangeDevice", "_cuda_setDevice")
             if hasattr(C, name)]


@rule(*_SWITCHES)
def _switch(vm: VM, callee: Any, device: Any, /) -> Any:
    """`with torch.cuda.device(0)`: nothing happens where that device is the current one already."""
    current = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    if current is None or device != current:
        raise Break("SB006", f"another CUDA device than {current} becomes the current one")
    vm.heap.guard(CallOf(Pinned(torch.cuda.current_device)), Kind.FRESH_CALL, current)
    return None if callee.__name__ == "_cuda_setDevice" else current
