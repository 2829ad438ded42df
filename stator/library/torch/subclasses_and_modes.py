"""Rules for tensor subclasses and TorchFunctionModes.   x.as_subclass(C)  ->  a fake that the program sees as a C

The default `__torch_function__` is done here; any other is interpreted.  The stack of modes is the interpreter's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions

from stator.breaks import Break, Strategy
from stator.graph.metadata.input_layouts import acts_above_dispatch
from stator.host.value_kinds import is_a, mro_of
from stator.interp.calls import function_mode_stack
from stator.interp.lookup import ancestors
from stator.interp.objects.attributes import tensor_class
from stator.interp.rule_registry import rule
from stator.interp.tensors.tensor_bookkeeping import set_requires_grad
from stator.interp.torch_function_protocol import DEFAULT, DISABLED
from stator.interp.vm import VM
from stator.source import Pinned

C: Any = torch._C
_TensorBase: Any = torch._C.TensorBase
_ALIAS: Any = torch.ops.aten.alias.default
_DETACH: Any = torch.Tensor.detach  # type: ignore[attr-defined]
_LEVELS = {C.DisableTorchFunctionSubclass: 1, C.DisableTorchFunction: 2}


def note_class(vm: VM, fake: FakeTensor, cls: type) -> Any:
    """From now on the program sees an object of `cls`."""
    if id(fake) in vm.recorder.classes:
        raise Break("SB017", f"a tensor that is a {cls.__name__} now")
    if cls is not torch.Tensor:
        vm.recorder.classes[id(fake)] = cls
        if id(cls) not in vm.fresh:
            vm.heap.guard_call(acts_above_dispatch, True, Pinned(cls))
    return fake


def require_class(cls: type, what: str) -> None:
    if not is_a(cls, type) or torch.Tensor not in mro_of(cls):
        raise Break("SB017", f"{what} of what is no subclass of Tensor")
    if torch.nn.Parameter in mro_of(cls) or torch.nn.Buffer in mro_of(cls):
        raise Break("SB016", "a Parameter or Buffer made inside the captured code")
    if not acts_above_dispatch(cls):
        raise Break("SB017", f"a {cls.__name__} made by {what}")


def unhandled(vm: VM, fn: object, args: object) -> Any:
    """An operation below `__torch_function__`."""
    before, vm.modes.functions_off = vm.modes.functions_off, 2
    try:
        return vm.torch_call(fn, args, None)
    finally:
        vm.modes.functions_off = before


@rule(_TensorBase.as_subclass)
def _as_subclass(vm: VM, fake: Any, /, cls: Any) -> Any:
    if type(fake) is not FakeTensor:
        raise Break("SB017", f"as_subclass of a {type(fake).__name__}")
    require_class(cls, "as_subclass")
    return note_class(vm, unhandled(vm, _ALIAS, (fake,)), cls)


@rule(_TensorBase._make_subclass)
def _make_subclass(vm: VM, /, *args: Any, **kwargs: object) -> Any:
    """_make_subclass(cls, data, require_grad=False): the data, detached, as an object of the class."""
    if len(args) not in (2, 3) or set(kwargs) - {"require_grad"} or type(args[1]) is not FakeTensor:
        raise Break("SB017", "_make_subclass with other arguments than a class, a tensor and a flag")
    require_class(args[0], "_make_subclass")
    made = unhandled(vm, _DETACH, (args[1],))
    if kwargs.get("require_grad", args[2] if len(args) == 3 else False):
        set_requires_grad(vm, made, True)
    return note_class(vm, made, args[0])


@rule(_TensorBase.__new__)
def _new(vm: VM, cls: Any, /, *args: Any, **kwargs: Any) -> Any:
    """C(tensor) of a class without a `__new__`: an alias; C([1.0, 2.0]), C(2, 3): a new tensor."""
    require_class(cls, "a call of the class")
    if len(args) == 1 and type(args[0]) is FakeTensor and not kwargs:
        return note_class(vm, unhandled(vm, _ALIAS, args), cls)
    return note_class(vm, vm.call_sync(torch.Tensor, args, kwargs), cls)


@rule(DEFAULT.__func__)
def _default_handler(vm: VM, cls: Any, func: Any, types: Any, args: object = (), kwargs: Any = None) -> Any:
    """Tensor.__torch_function__(cls, func, types, args=(), kwargs=None): the operation, its tensors made `cls`."""
    vm.heap.expose(types)
    positional = vm.collect(args)
    if not all(kind in ancestors(vm, cls) for kind in types):
        return NotImplemented
    known = len(vm.recorder.kept)
    before, vm.modes.functions_off = vm.modes.functions_off, max(vm.modes.functions_off, 1)
    try:
        result = vm.call_sync(func, tuple(positional), kwargs)
        made = {id(fake) for fake in vm.recorder.kept[known:]}
        if cls is not torch.Tensor and func not in get_default_nowrap_functions():
            result = _converted(vm, result, cls, made)
    finally:
        vm.modes.functions_off = before
    return result


def _converted(vm: VM, value: Any, cls: type, made: set[int]) -> Any:
    """The tensors in a result as objects of the class; one that the operation has just made needs no alias."""
    if type(value) is FakeTensor:
        seen = tensor_class(vm, value)
        if cls in ancestors(vm, seen):
            return value
        require_class(cls, "an operation")
        if id(value) in made and seen is torch.Tensor:
            return note_class(vm, value, cls)
        return note_class(vm, unhandled(vm, _ALIAS, (value,)), cls)
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([_converted(vm, part, cls, made) for part in value])
    if is_a(value, (tuple, list)) and any(type(part) is FakeTensor for part in value):
        if kind.__module__ != "torch.return_types":
            raise Break("SB017", f"a {kind.__name__} of tensors from an operation on a {cls.__name__}")
        return kind([_converted(vm, part, cls, made) for part in value])
    return value


@rule(DISABLED)
def _disabled_handler(vm: VM, func: Any, types: object, /, *rest: Any, **kwargs: object) -> Any:
    """`__torch_function__ = _disabled_torch_function_impl`, called by the program."""
    if kwargs or len(rest) > 1 and rest[1] is None:
        raise Break("SB005", "a disabled __torch_function__ that is given no dict of keywords")
    before, vm.modes.functions_off = vm.modes.functions_off, 2
    try:
        return vm.call_sync(func, tuple(vm.collect(rest[0])) if rest else (), rest[1] if len(rest) > 1 else None)
    finally:
        vm.modes.functions_off = before


@rule(*[cls.__enter__ for cls in _LEVELS])
def _enter(vm: VM, context: object, /) -> None:
    cls = type(context)
    if Strategy.FUNCTIONS_OFF in vm.turned_off or _LEVELS[cls] == 2 and vm.modes.active:
        raise Break("SB006", f"{cls.__name__}, a setting of torch")
    vm.modes.functions_off_before.append((context, vm.modes.functions_off))
    vm.modes.functions_off = max(vm.modes.functions_off, _LEVELS[cls])


@rule(*[cls.__exit__ for cls in _LEVELS])
def _leave(vm: VM, context: object, /, *error: object) -> None:
    if not vm.modes.functions_off_before or vm.modes.functions_off_before[-1][0] is not context:
        raise Break("SB006", f"leaving a {type(context).__name__} that was entered before the call")
    vm.modes.functions_off = vm.modes.functions_off_before.pop()[1]


@rule(C._get_torch_function_state)
def _state(vm: VM) -> Any:
    state = C._TorchFunctionState
    return (state.ENABLED, state.SUBCLASSES_DISABLED, state.ALL_DISABLED)[vm.modes.functions_off]


rule(*_LEVELS)(lambda vm, callee, /: callee())
rule(C._is_torch_function_enabled)(lambda vm: not vm.modes.functions_off)
rule(C._is_torch_function_all_disabled)(lambda vm: vm.modes.functions_off == 2)


@rule(TorchFunctionMode.__enter__, unasked=True)
def _enter_mode(vm: VM, self: object) -> Any:
    function_mode_stack.enter(vm, self)
    return self


@rule(TorchFunctionMode.__exit__, unasked=True)
def _exit_mode(vm: VM, self: object, exc_type: object, exc_val: object, exc_tb: object) -> None:
    function_mode_stack.leave(vm)


@rule(C._push_on_torch_function_stack, unasked=True)
def _push(vm: VM, value: object, /) -> Any:
    function_mode_stack.enter(vm, value)
    return None


def _refuse_device(vm: VM) -> None:
    if vm.torch_state.devices or vm.modes.functions_off == 2:
        raise Break("SB005", "the stack of modes while there is a default device, or while they are turned off")


@rule(C._len_torch_function_stack, unasked=True)
def _len(vm: VM) -> int:
    _refuse_device(vm)
    return len(vm.modes.active)


@rule(C._get_function_stack_at, unasked=True)
def _get(vm: VM, value: object, /) -> Any:
    _refuse_device(vm)
    if type(value) is not int or not 0 <= value < len(vm.modes.active):
        raise Break("SB005", "a place outside the stack of modes")
    return vm.modes.active[value]


rule(C._pop_torch_function_stack, unasked=True)(lambda vm: function_mode_stack.leave(vm))
