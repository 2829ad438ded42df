"""Enter and leave TorchFunctionModes.   _push_on_torch_function_stack(m), m.__exit__()  ->  the trace's own stack

In: pushes and pops of the program, also of modes around the call.  Out: `vm.modes`; at the end of a trace, whether
the stack is another one (`emit/effects/mode_stack.py` writes it back).
"""

from __future__ import annotations

import sys
from typing import Any

from stator.breaks import Break, Strategy
from stator.interp.calls.function_modes import refuse
from stator.interp.services import VM


def enter(vm: VM, mode: object) -> None:
    if Strategy.FUNCTION_MODES in vm.turned_off:
        raise Break("SB005", "a mode that sees every operation")
    if vm.modes.functions_off == 2:
        raise Break("SB005", "a mode that is turned off")
    if is_index_mode(mode) and not vm.modes.active:
        vm.modes.index_modes.append(mode)
        vm.modes.indexes_stay_tensors = True
        return
    vm.modes.active.append(mode)


def is_index_mode(mode: object) -> bool:
    """Whether a mode does nothing but take `x[i]`, i a position inside vmap, for the operation that it is."""
    torchs_own = sys.modules.get("torch._dynamo._trace_wrapped_higher_order_op")  # asked for, never imported
    return torchs_own is not None and type(mode) is torchs_own.TransformGetItemToIndex


def leave(vm: VM) -> Any:
    if vm.modes.index_modes and len(vm.modes.active) == vm.modes.kept:
        mode = vm.modes.index_modes.pop()
        vm.modes.indexes_stay_tensors = bool(vm.modes.index_modes)
        return mode
    if len(vm.modes.active) <= vm.modes.kept:
        if not vm.modes.active or vm.modes.handling or vm.torch_state.devices \
                or Strategy.FUNCTION_MODES in vm.turned_off:
            raise Break("SB005", "leaving a mode that was entered before the call")
        vm.modes.kept -= 1
    return vm.modes.active.pop()


def is_changed(vm: VM) -> bool:
    """Whether the program leaves other modes on than it has met."""
    return not len(vm.modes.active) == vm.modes.kept == vm.modes.at_start


def require_balance(vm: VM) -> None:
    """Modes that stay on, or were left, are written back; a default device beside them has a place of its own."""
    if vm.modes.index_modes or is_changed(vm) and vm.torch_state.devices:
        raise refuse("the end of the call")
    if vm.modes.functions_off != vm.modes.functions_off_at_start:
        raise Break("SB006", "__torch_function__ is still off at the end of the call")
