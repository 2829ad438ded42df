"""The state of torch that a graph depends on.   now  ->  GlobalState(grad_enabled=True, ...)

`global_state()` reads it through torch's own Python functions, once per trace, before the tracer
installs any mode of its own.  At every call the C++ guard program compares the same fields without
calling Python.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.utils._device import DeviceContext

AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class DefaultDevice:
    """`torch.device(...)` as a context or `torch.set_default_device`: the device counts, not the object."""

    device: torch.device


@dataclass(frozen=True, slots=True)
class ActiveMode:
    """Another TorchFunctionMode on the stack: its class; what the trace reads of it has guards of its own."""

    kind: type


@dataclass(frozen=True, slots=True)
class GlobalState:
    """One reading of torch's global state."""

    grad_enabled: bool
    inference_mode: bool
    # (enabled, dtype) for each of AUTOCAST_DEVICES
    autocast: tuple[tuple[bool, torch.dtype], ...]
    autocast_cache: bool
    default_dtype: torch.dtype
    deterministic: bool
    deterministic_warn_only: bool
    # 0 enabled, 1 disabled for subclasses, 2 disabled for modes too
    torch_function_disabled: int
    function_modes: tuple[ActiveMode | DefaultDevice, ...]
    dispatch_modes: int
    functorch_level: int

    def text(self) -> str:
        said = [f"grad mode {'on' if self.grad_enabled else 'off'}", f"default dtype {self.default_dtype}"]
        if self.inference_mode:
            said.append("inference mode")
        for device, (enabled, dtype) in zip(AUTOCAST_DEVICES, self.autocast, strict=True):
            if enabled:
                said.append(f"autocast {device} {dtype}")
        if self.deterministic:
            said.append("deterministic algorithms" + (" (warn only)" if self.deterministic_warn_only else ""))
        for mode in self.function_modes:
            if isinstance(mode, DefaultDevice):
                said.append(f"default device {mode.device}")
            else:
                said.append(f"mode {mode.kind.__qualname__}")
        if self.dispatch_modes:
            said.append(f"{self.dispatch_modes} dispatch modes")
        if self.functorch_level:
            said.append(f"functorch level {self.functorch_level}")
        return "torch state: " + ", ".join(said)

    def differences(self, other: GlobalState) -> list[tuple[str, object, object]]:
        """The fields that differ: (name, here, there)."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return [(name, here, there) for name, here, there in pairs if here != there]


def global_state() -> GlobalState:
    """Read torch's state now."""
    return GlobalState(
        grad_enabled=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        autocast=tuple(
            (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in AUTOCAST_DEVICES
        ),
        autocast_cache=torch.is_autocast_cache_enabled(),
        default_dtype=torch.get_default_dtype(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        deterministic_warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        torch_function_disabled=_torch_function_disabled(),
        function_modes=tuple(_describe_mode(mode) for mode in _function_mode_stack()),
        dispatch_modes=torch._C._len_torch_dispatch_stack(),
        functorch_level=len(torch._C._functorch.get_interpreter_stack() or ()),
    )


def _function_mode_stack() -> list[object]:
    depth = torch._C._len_torch_function_stack()
    return [torch._C._get_function_stack_at(level) for level in range(depth)]


def _describe_mode(mode: Any) -> ActiveMode | DefaultDevice:
    if type(mode) is DeviceContext:
        return DefaultDevice(mode.device)
    return ActiveMode(type(mode))


def _torch_function_disabled() -> int:
    if torch._C._is_torch_function_enabled():
        return 0
    return 2 if torch._C._is_torch_function_all_disabled() else 1
