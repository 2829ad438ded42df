"""Rules for torch's settings: grad mode, autocast, default dtype and device, inference mode, attention kernels.

A change is recorded in the graph and made for real while tracing (see graph/torch_state); a reader of a setting
that the entry does not guard anyway is guarded by its own answer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from stator.breaks import Break
from stator.graph.torch_state import SETTING_OF_READER, SETTINGS, Setting
from stator.guards.guard import Kind, is_constant
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule
from stator.native.rows_declare import ROWS, NativeClass
from stator.native.rows_torch import SETTING
from stator.source import CallOf, Pinned

C: Any = torch._C
INFERENCE = "inference mode"  # a way of capturing


# ---------------------------------------------------------------------- setters


def _setter_rule(setting: Setting) -> Any:
    def change(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        vm.heap.expose_deep(args)
        if setting.setter is C.set_autocast_enabled and len(args) == 1:
            args = ("cuda", *args)  # the older signature
        if any(type(value) not in _SETTABLE for value in (*args, *kwargs.values())):
            raise Break("SB006", f"{setting.setter.__name__} with an argument that is no constant")
        if setting.setter is C._set_default_dtype and not vm.recorder.in_order:
            raise Break("SB006", "the default dtype, which operators in a compiled graph would not see")
        try:
            vm.torch_state.change(setting, tuple(args), kwargs)
        except Exception as error:
            raise Raised(error) from None
        vm.recorder.record("call_function", setting.setter, tuple(args), dict(kwargs), None)
        vm.give(None, cont)
    return change


_SETTABLE = frozenset({bool, int, str, list, torch.dtype})
for _setting in SETTINGS:
    rule(_setting.setter)(_setter_rule(_setting))


@rule(C.autocast_increment_nesting)
def _autocast_entered(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.torch_state.autocast_depth += 1
    vm.give(vm.torch_state.autocast_depth, cont)


@rule(C.autocast_decrement_nesting)
def _autocast_left(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    """Counted from the entry: contexts around the call may come and go, and clearing the cache never hurts."""
    vm.torch_state.autocast_depth -= 1
    if vm.torch_state.autocast_depth < 0:
        raise Break("SB006", "leaving an autocast context that was entered before the call")
    vm.give(vm.torch_state.autocast_depth, cont)


@rule(C.clear_autocast_cache)
def _clear_autocast_cache(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    C.clear_autocast_cache()
    vm.recorder.record("call_function", C.clear_autocast_cache, (), {}, None)
    vm.give(None, cont)


# ---------------------------------------------------------------------- readers


def _reader_rule(reader: Any) -> Any:
    setting = SETTING_OF_READER.get(id(reader))

    def read(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        if kwargs or not is_constant(tuple(args)):
            raise Break("SB001", f"{reader.__name__} of what is no constant")
        try:
            answer = reader(*args)
        except Exception as error:
            raise Raised(error) from None
        if setting is None or not vm.torch_state.is_changed(setting):
            if type(answer) is list and is_constant(tuple(answer)):
                vm.heap.guard(CallOf(Pinned(_as_tuple), (Pinned(reader),)), Kind.FRESH_CALL, tuple(answer))
            elif is_constant(answer):
                source = CallOf(Pinned(reader), tuple(Pinned(arg) for arg in args))
                vm.heap.guard(source, Kind.FRESH_CALL, answer)
            else:
                raise Break("SB001", f"{reader.__name__} answers a {type(answer).__name__}")
        vm.give(answer, cont)
    return read


def _as_tuple(reader: Any) -> tuple[Any, ...]:
    return tuple(reader())


for _row in list(ROWS.values()):
    if _row.cls is NativeClass.OUTSIDE_REF and _row.why == SETTING:
        rule(_row.obj)(_reader_rule(_row.obj))
for _setting in SETTINGS:
    for _reader in _setting.readers:
        rule(_reader)(_reader_rule(_reader))


@rule(C._ImperativeEngine.is_checkpoint_valid, arity=(1,))
def _is_checkpoint_valid(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    """Whether the backward pass around the call, if there is one, goes to all leaves."""
    answer = torch.autograd._is_checkpoint_valid()
    vm.heap.guard(CallOf(Pinned(torch.autograd._is_checkpoint_valid), ()), Kind.FRESH_CALL, answer)
    vm.give(answer, cont)


# ---------------------------------------------------------------------- older spellings

_OLDER = {
    "is_autocast_cpu_enabled": (C.is_autocast_enabled, "cpu"), "get_autocast_cpu_dtype": (C.get_autocast_dtype, "cpu"),
    "get_autocast_gpu_dtype": (C.get_autocast_dtype, "cuda"),
    "set_autocast_cpu_enabled": (C.set_autocast_enabled, "cpu"),
    "set_autocast_cpu_dtype": (C.set_autocast_dtype, "cpu"), "set_autocast_gpu_dtype": (C.set_autocast_dtype, "cuda"),
}


def _older_rule(function: Any, device: str) -> Any:
    def forward(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        vm.call(function, (device, *args), kwargs, cont)
    return forward


for _name, (_function, _device) in _OLDER.items():
    if hasattr(C, _name):
        rule(getattr(C, _name))(_older_rule(_function, _device))


@rule(C._are_functorch_transforms_active, arity=(0,))
def _transforms_active(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(C._are_functorch_transforms_active(), cont)  # a trace does not begin inside one


# ---------------------------------------------------------------------- inference mode


def _switches(function: Any) -> Any:
    def switch(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        if INFERENCE in vm.turned_off:
            raise Break("SB006", "inference mode, which the backend could not compile as part of a graph")
        if function is torch.inference_mode.__exit__ and not vm.torch_state.contexts:
            raise Break("SB006", "leaving an inference mode that was entered before the call")
        vm.push(vm.frame_for(function, args, kwargs), cont)
    return switch


for _function in (torch.inference_mode.__enter__, torch.inference_mode.__exit__):
    rule(_function)(_switches(_function))


@rule(C._InferenceMode)
def _new_inference_mode(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    if kwargs or len(args) != 1 or type(args[0]) is not bool:
        raise Break("SB001", "torch._C._InferenceMode with other arguments than one bool")
    guard = C._InferenceMode(*args)  # on from now, not from __enter__
    node = vm.recorder.record("call_function", _enter_inference_mode, tuple(args), {}, None)
    vm.torch_state.contexts.append((guard, node))
    vm.give(guard, cont)


@rule(C._InferenceMode.__dict__["__enter__"].__func__)
def _enter(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(None, cont)


@rule(C._InferenceMode.__dict__["__exit__"].__func__)
def _exit(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    contexts = vm.torch_state.contexts
    if not contexts or contexts[-1][0] is not args[0]:
        raise Break("SB005", "an inference mode left out of order")
    guard, node = contexts.pop()
    guard.__exit__(None, None, None)
    vm.recorder.record("call_function", _exit_inference_mode, (node,), {}, None)
    vm.give(None, cont)


# ---------------------------------------------------------------------- the default device


@rule(torch.device.__enter__)
def _enter_device(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.torch_state.devices.append(args[0])
    vm.give(args[0], cont)


@rule(torch.device.__exit__)
def _exit_device(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    state = vm.torch_state
    if len(state.devices) <= state.devices_at_start:
        raise Break("SB006", "leaving a device context that was entered before the call")
    state.devices.pop()
    vm.give(None, cont)


@rule(torch.get_default_device)
def _get_default_device(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    devices = vm.torch_state.devices
    if devices and devices[-1].index is None and devices[-1].type not in ("cpu", "meta"):
        raise Break("SB013", "which device of its kind is the current one")
    vm.give(devices[-1] if devices else torch.device("cpu"), cont)


@rule(torch.set_default_device, torch.use_deterministic_algorithms)
def _process_setting(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    raise Break("SB006", "a setting of the whole process")


@rule(C._len_torch_dispatch_stack)
def _dispatch_modes(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(0, cont)  # the tracer's own modes must not show, and there are no others


@rule(C._is_torch_function_mode_enabled)
def _function_mode(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    vm.give(bool(vm.modes), cont)  # the tracer's own mode must not show
