"""Rules for the defaults of the process: the device of new tensors, deterministic algorithms, the default tensor type.

A default device is played by the recorder, and set for real by the residual; the others are settings of torch's like
those of settings.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from stator.breaks import Break
from stator.graph.state.torch_state import DETERMINISM, determinism, process_device
from stator.guards.guard import Kind
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.library.torch.settings import change_setting
from stator.source import CallOf, Pinned

C: Any = torch._C


# ---------------------------------------------------------------------- the default device


@rule(torch.device.__enter__, unasked=True)
def _enter_device(vm: VM, device: Any, /) -> Any:
    vm.torch_state.devices.append(device)
    return device


@rule(torch.device.__exit__, unasked=True)
def _exit_device(vm: VM, device: Any, /, *error: Any) -> None:
    state = vm.torch_state
    if len(state.devices) <= state.devices_at_start:
        raise Break("SB006", "leaving a device context that was entered before the call")
    state.devices.pop()


@rule(torch.get_default_device)
def _get_default_device(vm: VM) -> Any:
    devices = vm.torch_state.devices
    if devices and devices[-1].index is None and devices[-1].type not in ("cpu", "meta"):
        raise Break("SB013", "which device of its kind is the current one")
    return devices[-1] if devices else torch.device("cpu")


@rule(torch.set_default_device)
def _set_default_device(vm: VM, device: Any) -> None:
    """Beside `with torch.device(...)` torch itself restores what it finds, in an order of its own."""
    state = vm.torch_state
    now = state.default_device[0] if state.default_device else process_device()
    if type(device) not in (str, torch.device, type(None)):
        raise Break("SB006", "torch.set_default_device of what is no device")
    if state.devices != ([] if now is None else [now]) or vm.modes.active:
        raise Break("SB006", "torch.set_default_device inside `with torch.device(...)` or beside another mode")
    try:
        wanted = None if device is None else torch.device(device)
    except Exception as error:
        if now is not None:  # by then torch has left the device of before, without saying so
            raise Break("SB006", f"torch.set_default_device of {device}, which is no device") from None
        raise Raised(error) from None
    if not state.default_device:
        vm.heap.guard(CallOf(Pinned(process_device)), Kind.FRESH_CALL, now)
    state.default_device = (wanted,)
    state.devices = [] if wanted is None else [wanted]
    state.devices_at_start = len(state.devices)


# ---------------------------------------------------------------------- deterministic algorithms


def _set_deterministic(vm: VM, mode: object, warn_only: object, of_inductor: bool | None) -> None:
    if type(mode) is not bool or type(warn_only) is not bool:
        raise Break("SB006", "deterministic algorithms by what is no bool")
    change_setting(vm, DETERMINISM, (mode, warn_only, of_inductor), {})


@rule(torch.use_deterministic_algorithms)
def _use_deterministic(vm: VM, mode: Any, *, warn_only: Any = False) -> None:
    importlib.import_module("torch._inductor.config")  # as torch does
    if not vm.torch_state.is_changed(DETERMINISM):  # the guard of torch's state says nothing of Inductor's part
        vm.heap.guard(CallOf(Pinned(determinism)), Kind.FRESH_CALL, determinism())
    _set_deterministic(vm, mode, warn_only, mode)


@rule(C._set_deterministic_algorithms)
def _set_deterministic_algorithms(vm: VM, /, *args: Any, **kwargs: Any) -> None:
    if len(args) != 1 or kwargs.keys() - {"warn_only"}:
        raise Break("SB006", "torch._C._set_deterministic_algorithms with other arguments than torch's own")
    _set_deterministic(vm, args[0], kwargs.get("warn_only", False), determinism()[2])


# ---------------------------------------------------------------------- the default tensor type


@suspending_rule(C._set_default_tensor_type)
def _set_default_tensor_type(vm: VM, cont: Any, kind: Any, /) -> None:
    """On the CPU it is the default dtype by another name."""
    if type(kind) is not type(torch.FloatTensor) or kind.is_cuda or C._get_default_device() != "cpu":
        raise Break("SB006", "a default tensor type that is not of the CPU")
    vm.call(C._set_default_dtype, (kind.dtype,), {}, cont)
