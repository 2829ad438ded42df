"""Rules for torch's settings: grad mode, autocast, default dtype, inference mode, attention kernels.

A change is recorded in the graph and made for real while tracing (see graph/state/torch_state); a reader of a setting
that the entry does not guard anyway is guarded by its own answer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from stator.breaks import Break
from stator.graph.state.torch_state import SETTING_OF_READER, SETTINGS, Setting, set_determinism
from stator.guards.guard import Kind, is_constant
from stator.interp.calls.torch_arguments import guard_answer
from stator.interp.frame import Raised
from stator.interp.rule_registry import INTERPRETED, rule, suspending_rule
from stator.interp.vm import VM
from stator.native.rows_declare import ROWS, NativeClass
from stator.native.rows_torch import SETTING
from stator.source import CallOf, Pinned
from stator.strategy import Strategy

C: Any = torch._C


# ---------------------------------------------------------------------- setters


_SETTABLE = frozenset({bool, int, str, list, torch.dtype})
_SETTING_OF_SETTER = {id(setting.setter): setting for setting in SETTINGS}


@rule(*[setting.setter for setting in SETTINGS])
def _set(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> None:
    vm.heap.expose_deep(args)
    if callee is C.set_autocast_enabled and len(args) == 1:
        args = ("cuda", *args)  # the older signature
    if any(type(value) not in _SETTABLE for value in (*args, *kwargs.values())):
        raise Break("SB006", f"{callee.__name__} with an argument that is no constant")
    change_setting(vm, _SETTING_OF_SETTER[id(callee)], args, kwargs)


def change_setting(vm: VM, setting: Setting, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if setting.of_operators and not vm.recorder.backend.in_order:
        if not kwargs and setting.read(*args[:setting.keys]) == args[setting.keys:]:
            return
        raise Break("SB006", f"{_NAMES[setting.setter]}, which operators in a compiled graph would not see")
    vm.torch_state.by_program = True
    try:
        vm.torch_state.change(setting, args, kwargs)
    except Exception as error:
        raise Raised(error) from None
    vm.recorder.record("call_function", setting.setter, args, dict(kwargs), None)


_NAMES = {C._set_default_dtype: "the default dtype", set_determinism: "the choice of deterministic algorithms"}


@rule(C.autocast_increment_nesting)
def _autocast_entered(vm: VM) -> int:
    vm.torch_state.autocast_depth += 1
    return vm.torch_state.autocast_depth


@rule(C.autocast_decrement_nesting)
def _autocast_left(vm: VM) -> int:
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
      *[reader for setting in SETTINGS for reader in setting.readers])
def _read(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    if kwargs or not is_constant(args):
        raise Break("SB001", f"{callee.__name__} of what is no constant")
    try:
        answer = callee(*args)
    except Exception as error:
        raise Raised(error) from None
    setting = SETTING_OF_READER.get(id(callee))
    if setting is None or not vm.torch_state.is_changed(setting):
        if type(answer) is list and is_constant(tuple(answer)):
            guard_answer(vm, callee, answer)
        elif is_constant(answer):
            source = CallOf(Pinned(callee), tuple(Pinned(arg) for arg in args))
            vm.heap.guard(source, Kind.FRESH_CALL, answer)
        else:
            raise Break("SB001", f"{callee.__name__} answers a {type(answer).__name__}")
    return answer


# ---------------------------------------------------------------------- readers


@rule(C._ImperativeEngine.is_checkpoint_valid)
def _is_checkpoint_valid(vm: VM, engine: Any, /) -> bool:
    """Whether the backward pass around the call, if there is one, goes to all leaves."""
    answer = torch.autograd._is_checkpoint_valid()
    vm.heap.guard(CallOf(Pinned(torch.autograd._is_checkpoint_valid), ()), Kind.FRESH_CALL, answer)
    return answer


# ---------------------------------------------------------------------- older spellings

_OLDER = {
    "is_autocast_cpu_enabled": (C.is_autocast_enabled, "cpu"), "get_autocast_cpu_dtype": (C.get_autocast_dtype, "cpu"),
    "get_autocast_gpu_dtype": (C.get_autocast_dtype, "cuda"),
    "set_autocast_cpu_enabled": (C.set_autocast_enabled, "cpu"),
    "set_autocast_cpu_dtype": (C.set_autocast_dtype, "cpu"), "set_autocast_gpu_dtype": (C.set_autocast_dtype, "cuda"),
}


@suspending_rule(*[getattr(C, name) for name in _OLDER if hasattr(C, name)])
def _older(vm: VM, cont: Any, callee: Any, /, *args: Any, **kwargs: Any) -> None:
    function, device = _OLDER[callee.__name__]
    vm.call(function, (device, *args), kwargs, cont)


@rule(C._are_functorch_transforms_active)
def _transforms_active(vm: VM) -> bool:
    return C._are_functorch_transforms_active()  # a trace does not begin inside one


# ---------------------------------------------------------------------- inference mode


@rule(torch.inference_mode.__enter__, torch.inference_mode.__exit__)
def _switch(vm: VM, callee: Any, self: Any, exc_type: Any = None, exc_value: Any = None, traceback: Any = None) -> Any:
    if Strategy.INFERENCE_MODE in vm.turned_off:
        why = vm.policy.why_off.get(Strategy.INFERENCE_MODE, "the backend could not compile it as part of a graph")
        raise Break("SB006", f"inference mode: {why}")
    if callee is torch.inference_mode.__exit__ and not vm.torch_state.contexts:
        raise Break("SB006", "leaving an inference mode that was entered before the call")
    return INTERPRETED


@rule(C._InferenceMode)
def _new_inference_mode(vm: VM, /, *args: Any, **kwargs: Any) -> Any:
    if kwargs or len(args) != 1 or type(args[0]) is not bool:
        raise Break("SB001", "torch._C._InferenceMode with other arguments than one bool")
    guard = C._InferenceMode(*args)  # on from now, not from __enter__
    node = vm.recorder.record("call_function", _enter_inference_mode, args, {}, None)
    vm.torch_state.contexts.append((guard, node))
    return guard


@rule(C._InferenceMode.__dict__["__enter__"].__func__)
def _enter(vm: VM, mode: Any, /) -> None:
    return None


@rule(C._InferenceMode.__dict__["__exit__"].__func__)
def _exit(vm: VM, mode: Any, /, *error: Any) -> None:
    contexts = vm.torch_state.contexts
    if not contexts or contexts[-1][0] is not mode:
        raise Break("SB005", "an inference mode left out of order")
    guard, node = contexts.pop()
    guard.__exit__(None, None, None)
    vm.recorder.record("call_function", _exit_inference_mode, (node,), {}, None)


# ---------------------------------------------------------------------- modes


@rule(C._len_torch_dispatch_stack)
def _dispatch_modes(vm: VM) -> int:
    return 0  # the tracer's own modes must not show, and there are no others


@rule(C._is_torch_function_mode_enabled, unasked=True)
def _function_mode(vm: VM) -> bool:
    return bool(vm.modes.active)  # the tracer's own mode must not show
