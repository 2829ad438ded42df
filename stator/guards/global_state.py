"""The state of torch that a graph depends on.   now  ->  GlobalState(grad_enabled=True, ...)

Read once per trace, before the tracer installs any mode; the C++ guard program compares the same fields.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes

AUTOCAST_DEVICES = ("cpu", "cuda")
_settled: list[bool] = []  # the order of attention kernels


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
        parts = [f"grad mode {'on' if self.grad_enabled else 'off'}", f"default dtype {self.default_dtype}"]
        parts += ["inference mode"] * self.inference_mode
        parts += [f"autocast {device} {dtype}" for device, (enabled, dtype)
                  in zip(AUTOCAST_DEVICES, self.autocast, strict=True) if enabled]
        if self.deterministic:
            parts.append("deterministic algorithms" + (" (warn only)" if self.deterministic_warn_only else ""))
        parts += [f"default device {mode.device}" if isinstance(mode, DefaultDevice) else
                  f"mode {mode.kind.__qualname__}" for mode in self.function_modes]
        parts += [f"{self.dispatch_modes} dispatch modes"] * bool(self.dispatch_modes)
        parts += [f"functorch level {self.functorch_level}"] * bool(self.functorch_level)
        return "torch state: " + ", ".join(parts)

    def differences(self, other: GlobalState) -> list[tuple[str, object, object]]:
        """The fields that differ: (name, here, there)."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return [(name, here, there) for name, here, there in pairs if here != there]


def global_state() -> GlobalState:
    modes = [torch._C._get_function_stack_at(level) for level in range(torch._C._len_torch_function_stack())]
    return GlobalState(
        grad_enabled=torch.is_grad_enabled(), inference_mode=torch.is_inference_mode_enabled(),
        autocast=tuple((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                       for device in AUTOCAST_DEVICES),
        autocast_cache=torch.is_autocast_cache_enabled(), default_dtype=torch.get_default_dtype(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        deterministic_warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        torch_function_disabled=0 if torch._C._is_torch_function_enabled() else
        2 if torch._C._is_torch_function_all_disabled() else 1,
        function_modes=tuple(DefaultDevice(mode.device) if type(mode) is DeviceContext else ActiveMode(type(mode))
                             for mode in modes),
        dispatch_modes=torch._C._len_torch_dispatch_stack(),
        functorch_level=len(torch._C._functorch.get_interpreter_stack() or ()))


def settle_attention() -> None:
    """Make torch's first choice of a kernel on a GPU, which sets its order of kernels, before that order is a fact."""
    if not _settled and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        _settled.append(True)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            small = torch.empty(1, 1, 8, 64, dtype=torch.float16, device="cuda")
            torch._fused_sdp_choice(small, small, small)
