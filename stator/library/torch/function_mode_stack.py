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

C: Any = torch._C


@rule(TorchFunctionMode.__enter__, arity=(1,))
def _enter(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    function_modes.enter(vm, args[0])
    vm.give(args[0], cont)


@rule(TorchFunctionMode.__exit__)
def _exit(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    function_modes.leave(vm)
    vm.give(None, cont)


@rule(C._push_on_torch_function_stack, arity=(1,))
def _push(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    function_modes.enter(vm, args[0])
    vm.give(None, cont)


@rule(C._pop_torch_function_stack, arity=(0,))
def _pop(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(function_modes.leave(vm), cont)


def _refuse_device(vm: Any) -> None:
    if vm.torch_state.devices:
        raise Break("SB005", "the stack of modes while there is a default device")


@rule(C._len_torch_function_stack, arity=(0,))
def _len(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    _refuse_device(vm)
    vm.give(len(vm.modes.active), cont)


@rule(C._get_function_stack_at, arity=(1,))
def _get(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    _refuse_device(vm)
    if type(args[0]) is not int or not 0 <= args[0] < len(vm.modes.active):
        raise Break("SB005", "a place outside the stack of modes")
    vm.give(vm.modes.active[args[0]], cont)
