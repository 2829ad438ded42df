"""Rules for the stack of TorchFunctionModes.   with Mode():  ->  the interpreter's own stack; torch's is left alone

A default device, which torch keeps as a mode at the bottom of its stack, is played by the recorder instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from stator.breaks import Break
from stator.interp.calls import function_modes
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

C: Any = torch._C


@rule(TorchFunctionMode.__enter__, unasked=True)
def _enter(vm: VM, self: Any) -> Any:
    function_modes.enter(vm, self)
    return self


@rule(TorchFunctionMode.__exit__, unasked=True)
def _exit(vm: VM, self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
    function_modes.leave(vm)


@rule(C._push_on_torch_function_stack, unasked=True)
def _push(vm: VM, value: Any, /) -> Any:
    function_modes.enter(vm, value)
    return None


@rule(C._pop_torch_function_stack, unasked=True)
def _pop(vm: VM) -> Any:
    return function_modes.leave(vm)


def _refuse_device(vm: VM) -> None:
    if vm.torch_state.devices:
        raise Break("SB005", "the stack of modes while there is a default device")


@rule(C._len_torch_function_stack, unasked=True)
def _len(vm: VM) -> int:
    _refuse_device(vm)
    return len(vm.modes.active)


@rule(C._get_function_stack_at, unasked=True)
def _get(vm: VM, value: Any, /) -> Any:
    _refuse_device(vm)
    if type(value) is not int or not 0 <= value < len(vm.modes.active):
        raise Break("SB005", "a place outside the stack of modes")
    return vm.modes.active[value]
