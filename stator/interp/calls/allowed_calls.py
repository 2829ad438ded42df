"""A call of a function that the user marked.   helper(x, Config(y, 3))  ->  a node that calls `helper`, or a constant

In: the function and what the program hands to it.  Out: one node; the function itself has run on fake tensors.  It is
not interpreted, so it must not meet stand-ins of the user's objects: its arguments are tensors, constants, plain
containers of them and frozen dataclasses, which a node of their own makes.  Functions among them are the user's very
ones, guarded; a function that the program made holds values of the trace, and so does any other object: they break.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from stator.breaks import Break
from stator.errors import describe_callable
from stator.graph.fx.naming import field_names
from stator.guards.guard import Kind
from stator.heap.blank_instances import CONSTANT_TYPES
from stator.heap.outside_changes import changed_trackers
from stator.heap.reached_state import Reach
from stator.host.value_kinds import is_a
from stator.interp.frame import Continuation, Raised
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.objects.attributes import load_attr
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import Pinned

_STATELESS = (type, enum.Enum, types.BuiltinFunctionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def call_allowed(vm: VM, fn: Any, args: Iterable[Any], kwargs: dict[str, Any] | None, cont: Any) -> None:
    what = describe_callable(fn)
    args = tuple([_argument(vm, what, value) for value in args])
    kwargs = {name: _argument(vm, what, value) for name, value in (kwargs or {}).items()}
    remembered = vm.recorder.propagation
    before, remembered.enabled = remembered.enabled, False  # what a user's function yields may depend on more
    vm.recorder.symbols.keeps_sizes = True  # operators take a tuple for sizes; a function may ask for its numel()
    try:
        with Reach(fn).restored():  # the call of the graph has the effects
            result = vm.torch_call(fn, args, kwargs)
    finally:
        remembered.enabled, vm.recorder.symbols.keeps_sizes = before, False
    vm.give(result, cont)


def call_constant(vm: VM, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                  cont: Continuation | None) -> None:
    """assume_constant_result: the function is called now, with the user's own objects, and what it returns is kept."""
    what = describe_callable(fn)
    if changed_trackers(vm.heap):
        raise Break("SB006", f"{what}, whose result is assumed constant, after objects were changed that it may read")
    args = tuple([_own(vm, what, value) for value in args])
    kwargs = {name: _own(vm, what, value) for name, value in (kwargs or {}).items()}
    try:
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():  # the tracer's own modes
            result = fn(*args, **kwargs)
    except Exception as error:
        raise Raised(error) from None
    vm.give(vm.heap.adopt(result, Pinned(result)), cont)


def _own(vm: VM, what: str, value: Any) -> Any:
    """The user's object; of what the program made, plain containers of such."""
    value = specialise_deep(vm, value)
    cls = type(value)
    if cls is not FakeTensor:
        if vm.heap.tracker_of(value) is not None:
            return vm.guard_identity(value)
        if cls is types.FunctionType and id(value) not in vm.fresh:
            return _very_function(vm, value)
        if cls in CONSTANT_TYPES or is_a(value, _STATELESS):
            return value
        if cls is tuple or cls is list:
            return cls([_own(vm, what, item) for item in value])
        if cls is dict:
            return {key: _own(vm, what, item) for key, item in value.items()}
    raise Break("SB005", f"a {cls.__name__} passed to {what}, whose result is assumed constant")


def _argument(vm: VM, what: str, value: Any) -> Any:
    vm.heap.expose_deep(value)
    cls = type(value)
    if cls is FakeTensor or cls in CONSTANT_TYPES or cls in SYMBOLIC or cls is torch.Size:
        return value
    if cls is tuple or cls is list:
        return cls([_argument(vm, what, item) for item in value])
    if is_a(value, tuple) and hasattr(cls, "_fields"):
        return tuple.__new__(cls, [_argument(vm, what, item) for item in tuple.__iter__(value)])
    if cls is dict:
        return {key: _argument(vm, what, item) for key, item in value.items()}
    if cls is slice:
        return slice(*[_argument(vm, what, item) for item in (value.start, value.stop, value.step)])
    if cls is types.FunctionType:
        if id(value) not in vm.fresh:
            return _very_function(vm, value)
        if value.__closure__ or value.__defaults__ or value.__kwdefaults__:
            raise Break("SB005", f"a function that holds values of the program, passed to {what}")
        return value
    if is_a(value, _STATELESS):
        return value
    return _record(vm, what, value)


def _very_function(vm: VM, function: types.FunctionType) -> types.FunctionType:
    """Interpreted functions are known by their code and cells; one that runs by itself, by being this one."""
    source = vm.heap.source_of(function)
    if type(source) is not Pinned:
        vm.heap.guard(source, Kind.ID, function)
    return function


def _record(vm: VM, what: str, value: object) -> object:
    """A copy of a frozen dataclass, as its own __init__ would make it."""
    cls = type(value)
    names = field_names(cls)
    if names is None:
        raise Break("SB005", f"a {cls.__name__} passed to {what}")
    made = object.__new__(cls)
    for name in names:
        found = vm.sync(lambda: load_attr(vm, value, name))  # noqa: B023
        object.__setattr__(made, name, _argument(vm, what, found))
    return made
