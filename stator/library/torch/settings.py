"""Rules for torch's settings and devices: grad mode, autocast, defaults, determinism, attention kernels.

A change is recorded in the graph and made for real while tracing (graph/state/torch_state); a reader is guarded by its
answer.  The recorder acts as the default device, and the residual sets it.  Changes of the current device break.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from stator.breaks import Break, Strategy
from stator.graph.analysis.shared_memory import wants_gradient
from stator.graph.state import torch_state
from stator.guards.guard import is_constant
from stator.interp.calls.torch_arguments import guard_answer
from stator.interp.frame import Continuation, Raised
from stator.interp.rule_registry import INTERPRETED, rule, suspending_rule
from stator.interp.vm import VM
from stator.native.rows_declare import ROWS, NativeClass
from stator.native.rows_packages import SETTING
from stator.source import Pinned

C: Any = torch._C
_SETTABLE = frozenset({bool, int, str, list, torch.dtype})
_NAMES = {C._set_default_dtype: "the default dtype",
          torch_state.set_determinism: "the choice of deterministic algorithms"}
_OLDER = {
    "is_autocast_cpu_enabled": (C.is_autocast_enabled, "cpu"), "get_autocast_cpu_dtype": (C.get_autocast_dtype, "cpu"),
    "get_autocast_gpu_dtype": (C.get_autocast_dtype, "cuda"),
    "set_autocast_cpu_enabled": (C.set_autocast_enabled, "cpu"),
    "set_autocast_cpu_dtype": (C.set_autocast_dtype, "cpu"), "set_autocast_gpu_dtype": (C.set_autocast_dtype, "cuda"),
}
_SWITCHES = [getattr(C, name) for name in ("_cuda_exchangeDevice", "_cuda_maybeExchangeDevice", "_cuda_setDevice")
             if hasattr(C, name)]


@rule(*[setting.setter for setting in torch_state.SETTINGS])
def _set(vm: VM, callee: Any, /, *args: object, **kwargs: object) -> None:
    vm.heap.expose_deep(args)
    if callee is C.set_autocast_enabled and len(args) == 1:
        args = ("cuda", *args)  # the older signature
    if any(type(value) not in _SETTABLE for value in (*args, *kwargs.values())):
        raise Break("SB006", f"{callee.__name__} with an argument that is no constant")
    change_setting(vm, torch_state.SETTING_OF_SETTER[id(callee)], args, kwargs)


def change_setting(vm: VM, setting: torch_state.Setting, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Change a setting of torch while tracing, and record its setter as a node."""
    unseen = setting.of_operators and not vm.recorder.backend.in_order
    if unseen:
        if not kwargs and setting.read(*args[:setting.keys]) == args[setting.keys:]:
            return
        if setting is not torch_state.DETERMINISM or kwargs or vm.recorder.scope.enclosing is not None \
                or any(wants_gradient(node.meta.get("example_value")) for node in vm.recorder.graph.nodes):
            raise Break("SB006", f"{_NAMES[setting.setter]}, which operators in a compiled graph would not see")
    vm.torch_state.by_program = True
    try:
        vm.torch_state.change(setting, args, kwargs)
    except Exception as error:
        raise Raised(error) from None
    if unseen:  # no node: the residual leaves it behind, and until then only operators that do not look at it follow
        is_left = any(setter is setting.setter for setter, _ in vm.torch_state.left_behind())
        vm.recorder.region.unseen = _NAMES[setting.setter] if is_left else ""
    else:
        vm.recorder.record("call_function", setting.setter, args, dict(kwargs), None)


@rule(C.autocast_increment_nesting)
def _count_autocast_entry(vm: VM) -> int:
    vm.torch_state.autocast_depth += 1
    return vm.torch_state.autocast_depth


@rule(C.autocast_decrement_nesting)
def _count_autocast_exit(vm: VM) -> int:
    """Counted from the entry: contexts around the call may come and go, and clearing the cache never hurts."""
    vm.torch_state.autocast_depth -= 1
    if vm.torch_state.autocast_depth < 0:
        raise Break("SB006", "leaving an autocast context that was entered before the call")
    return vm.torch_state.autocast_depth


@rule(C.clear_autocast_cache)
def _clear_autocast_cache(vm: VM) -> None:
    C.clear_autocast_cache()
    vm.recorder.record("call_function", C.clear_autocast_cache, (), {}, None)


@rule(*[row.obj for row in ROWS.values() if row.cls is NativeClass.OUTSIDE_REF and row.why == SETTING],
      *[reader for setting in torch_state.SETTINGS for reader in setting.readers])
def _read(vm: VM, callee: Any, /, *args: Any, **kwargs: object) -> Any:
    if kwargs or not is_constant(args):
        raise Break("SB001", f"{callee.__name__} of what is no constant")
    try:
        answer = callee(*args)
    except Exception as error:
        raise Raised(error) from None
    setting = torch_state.SETTING_OF_READER.get(id(callee))
    if setting is None or not vm.torch_state.is_changed(setting):
        if type(answer) is list and is_constant(tuple(answer)):
            guard_answer(vm, callee, answer)
        elif is_constant(answer):
            vm.heap.guard_call(callee, answer, *(Pinned(arg) for arg in args))
        else:
            raise Break("SB001", f"{callee.__name__} answers a {type(answer).__name__}")
    return answer


@rule(C._ImperativeEngine.is_checkpoint_valid)
def _is_checkpoint_valid(vm: VM, engine: object, /) -> bool:
    """Whether the backward pass around the call, if there is one, goes to all leaves."""
    answer = torch.autograd._is_checkpoint_valid()
    vm.heap.guard_call(torch.autograd._is_checkpoint_valid, answer)
    return answer


@suspending_rule(*[getattr(C, name) for name in _OLDER if hasattr(C, name)])
def _older(vm: VM, cont: Continuation | None, callee: Any, /, *args: object, **kwargs: object) -> None:
    function, device = _OLDER[callee.__name__]
    vm.call(function, (device, *args), kwargs, cont)


# a trace does not begin inside one
rule(C._are_functorch_transforms_active)(lambda vm: C._are_functorch_transforms_active())


@rule(torch.inference_mode.__enter__, torch.inference_mode.__exit__)
def _switch(vm: VM, callee: object, self: Any, exc_type: Any = None, exc_value: Any = None,
            traceback: Any = None) -> Any:
    if Strategy.INFERENCE_MODE in vm.turned_off:
        why = vm.policy.why_off.get(Strategy.INFERENCE_MODE, "the backend could not compile it as part of a graph")
        raise Break("SB006", f"inference mode: {why}")
    if callee is torch.inference_mode.__exit__ and not vm.torch_state.contexts:
        raise Break("SB006", "leaving an inference mode that was entered before the call")
    return INTERPRETED


@rule(C._InferenceMode)
def _new_inference_mode(vm: VM, /, *args: object, **kwargs: object) -> Any:
    if kwargs or len(args) != 1 or type(args[0]) is not bool:
        raise Break("SB001", "torch._C._InferenceMode with other arguments than one bool")
    guard = C._InferenceMode(*args)  # on from now, not from __enter__
    node = vm.recorder.record("call_function", _enter_inference_mode, args, {}, None)
    vm.torch_state.contexts.append((guard, node))
    return guard


@rule(C._InferenceMode.__dict__["__exit__"].__func__)
def _exit(vm: VM, mode: object, /, *error: object) -> None:
    contexts = vm.torch_state.contexts
    if not contexts or contexts[-1][0] is not mode:
        raise Break("SB005", "an inference mode left out of order")
    guard, node = contexts.pop()
    guard.__exit__(None, None, None)
    vm.recorder.record("call_function", _exit_inference_mode, (node,), {}, None)


rule(C._InferenceMode.__dict__["__enter__"].__func__)(lambda vm, mode, /: None)


rule(C._len_torch_dispatch_stack)(lambda vm: 0)  # the tracer's own modes must not show, and there are no others
# the tracer's own mode must not show
rule(C._is_torch_function_mode_enabled, unasked=True)(lambda vm: bool(vm.modes.active))


@rule(torch.device.__enter__, unasked=True)
def _enter_device(vm: VM, device: object, /) -> Any:
    vm.torch_state.devices.append(device)
    return device


@rule(torch.device.__exit__, unasked=True)
def _exit_device(vm: VM, device: object, /, *error: object) -> None:
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
def _set_default_device(vm: VM, device: object) -> None:
    """Beside `with torch.device(...)` torch itself restores what it finds, in an order of its own."""
    state = vm.torch_state
    now = state.default_device[0] if state.default_device else torch_state.process_device()
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
        vm.heap.guard_call(torch_state.process_device, now)
    state.default_device = (wanted,)
    state.devices = [] if wanted is None else [wanted]
    state.devices_at_start = len(state.devices)


def _set_deterministic(vm: VM, mode: object, warn_only: object, of_inductor: bool | None) -> None:
    if type(mode) is not bool or type(warn_only) is not bool:
        raise Break("SB006", "deterministic algorithms by what is no bool")
    change_setting(vm, torch_state.DETERMINISM, (mode, warn_only, of_inductor), {})


@rule(torch.use_deterministic_algorithms)
def _use_deterministic(vm: VM, mode: Any, *, warn_only: Any = False) -> None:
    importlib.import_module("torch._inductor.config")  # as torch does
    if not vm.torch_state.is_changed(torch_state.DETERMINISM):  # no guard covers Inductor's part
        vm.heap.guard_call(torch_state.determinism, torch_state.determinism())
    _set_deterministic(vm, mode, warn_only, mode)


@rule(C._set_deterministic_algorithms)
def _set_deterministic_algorithms(vm: VM, /, *args: object, **kwargs: object) -> None:
    if len(args) != 1 or kwargs.keys() - {"warn_only"}:
        raise Break("SB006", "torch._C._set_deterministic_algorithms with other arguments than torch's own")
    _set_deterministic(vm, args[0], kwargs.get("warn_only", False), torch_state.determinism()[2])


@suspending_rule(C._set_default_tensor_type)
def _set_default_tensor_type(vm: VM, cont: Any, kind: Any, /) -> None:
    """On the CPU it is the default dtype by another name."""
    if type(kind) is not type(torch.FloatTensor) or kind.is_cuda or C._get_default_device() != "cpu":
        raise Break("SB006", "a default tensor type that is not of the CPU")
    vm.call(C._set_default_dtype, (kind.dtype,), {}, cont)


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
    vm.heap.guard_call(torch.cuda.device_count, count)
    return count


@rule(torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.cuda.is_bf16_supported,
      torch.cuda.get_arch_list)
def _ask(vm: VM, callee: Any, /, *args: object, **kwargs: object) -> Any:
    """A fact of one device, which is the current one unless it is named."""
    if not torch.cuda.is_initialized():  # the question itself would start the driver
        raise Break("SB013", f"torch.cuda.{callee.__name__} before any tensor was on a GPU")
    named = (*args, *kwargs.values())
    if not named or named[0] is None:
        vm.heap.guard_call(torch.cuda.current_device, torch.cuda.current_device())
    return _answer(callee, *args, **kwargs)


@rule(*_SWITCHES)
def _switch_device(vm: VM, callee: Any, device: object, /) -> Any:
    """`with torch.cuda.device(0)`: nothing happens where that device is the current one already."""
    current = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    if current is None or device != current:
        raise Break("SB006", f"another CUDA device than {current} becomes the current one")
    vm.heap.guard_call(torch.cuda.current_device, current)
    return None if callee.__name__ == "_cuda_setDevice" else current
