"""Refused calls, and calls of functions that the user marked.   helper(x, Config(y, 3))  ->  a node that calls `helper`

A call is refused before its arguments are read.  A function that is allowed in the graph runs on fake tensors, and
becomes one node; its arguments are tensors, constants, plain containers, frozen dataclasses, and guarded functions.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, unset_fake_temporarily

from stator.breaks import Break
from stator.errors import describe_callable
from stator.graph.fx.nodes import FlatCall, field_names
from stator.guards.guard import Kind
from stator.heap.outside_changes import changed_trackers
from stator.heap.raw_access import CONSTANT_TYPES
from stator.heap.reached_state import Reach
from stator.host.value_kinds import BUILTIN_METHOD, is_a
from stator.interp import iteration
from stator.interp.calls import module_copies, registered_arguments
from stator.interp.frame import Continuation, Raised
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.process_facts import note_constant
from stator.interp.rule_registry import RULES
from stator.interp.services import VM
from stator.native.table import NativeClass, Row, lookup, name_of, receiver_split
from stator.native.torch_ops import torch_leaf
from stator.settings import marks, torch_marks
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import Pinned

C_CALLABLES = {types.BuiltinFunctionType, BUILTIN_METHOD, types.MethodDescriptorType, types.WrapperDescriptorType,
               types.MethodWrapperType, types.ClassMethodDescriptorType}
_RUNNABLE = {NativeClass.PURE_SHELL, NativeClass.PURE, NativeClass.PURE_DEEP, NativeClass.MUTATES, NativeClass.ITERATOR}
_NEEDS_RULE = {NativeClass.SPECIAL, NativeClass.WRAPPER, NativeClass.OUTSIDE_REF}
_STATELESS = (type, enum.Enum, types.BuiltinFunctionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def refuse_disabled(fn: Callable[..., Any]) -> None:
    """Break at a function or class that the user has marked with stator.disable, or torch's disallow_in_graph."""
    mark = marks.disabled_mark(fn)
    if mark is not None:
        reason = f": {mark.reason}" if mark.reason else ""
        raise Break("SB010", f"{fn.__qualname__} is disabled{reason}", untouched=True)
    if torch_marks.is_forbidden(fn):
        raise Break("SB010", f"{fn.__qualname__} is forbidden in graphs").as_unsupported()
    refuse_disallowed(fn)


def refuse_disallowed(fn: Callable[..., Any]) -> None:
    """Break at what the user has marked with torch's disallow_in_graph; that may be an operation."""
    if torch_marks.is_disallowed(fn):
        raise Break("SB010", f"{fn.__name__} is not allowed in graphs", untouched=True)


def is_marked(fn: Callable[..., Any]) -> bool:
    if type(fn) is types.FunctionType and marks.is_unmarked(fn):
        return False
    return marks.is_disabled(fn) or marks.substitute(fn) is not None or marks.allowed_in_graph(fn) \
        or marks.is_constant_result(fn) or torch_marks.is_torch_compiled(fn) \
        or torch_marks.is_disallowed(fn) or torch_marks.is_forbidden(fn)


def runnable_row(fn: Callable[..., Any], row: Row | None) -> Row:
    """Return the row of a C callable; break where it has none, or one that does not let it run."""
    if row is None:
        raise Break("SB001", f"{describe_callable(fn)} is not in the native table", untouched=True)
    if row.cls in _RUNNABLE:
        return row
    if row.cls in _NEEDS_RULE:
        raise Break("SB001", f"{name_of(row)} needs a rule of the interpreter that does not exist yet", untouched=True)
    raise Break(row.code or "SB001", f"{name_of(row)}: {row.why}" if row.why else name_of(row), untouched=True)


def refuse_unlisted(fn: Any) -> None:
    """Break at a callable that is refused whatever its arguments are."""
    fn = fn.__func__ if type(fn) is types.MethodType else fn
    if type(fn) is types.FunctionType:
        if is_marked(fn) and id(fn) not in RULES:
            refuse_disabled(fn)
    elif type(fn) in C_CALLABLES:
        descriptor = receiver_split(fn)[0]
        module_copies.declare(descriptor)
        if id(descriptor) not in RULES and id(fn) not in RULES and not torch_leaf(descriptor) and not torch_leaf(fn) \
                and not is_marked(fn) and lookup(fn) is None and iteration.plan(descriptor, (), None) is None:
            runnable_row(fn, None)


def call_allowed(vm: VM, fn: Any, args: Iterable[Any], kwargs: dict[str, Any] | None, cont: Any) -> None:
    what = describe_callable(fn)
    if torch_marks.takes_structures(fn):
        leaves: list[Any] = []
        vm.heap.expose_deep((args, kwargs))
        build = registered_arguments.taken_apart(
            vm, what, (tuple(args), kwargs or {}), lambda value: _argument(vm, what, value), leaves)
        target = FlatCall(fn, build)
        flat = run_on_fakes(vm, fn, target, tuple(leaves), {})
        assert target.result is not None
        return vm.give(registered_arguments.put_together(vm, target.result, iter(flat)), cont)
    args = tuple([_argument(vm, what, value) for value in args])
    kwargs = {name: _argument(vm, what, value) for name, value in (kwargs or {}).items()}
    vm.give(run_on_fakes(vm, fn, fn, args, kwargs), cont)


def run_on_fakes(vm: VM, fn: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The node of a call, and what the function makes of fakes; tensors that it holds itself become fakes there."""
    remembered, mode = vm.recorder.propagation, vm.recorder.fake_mode
    before, remembered.enabled = remembered.enabled, False  # what a user's function yields may depend on more
    vm.recorder.symbols.keeps_sizes = True  # operators take a tuple for sizes; a function may ask for its numel()
    held = mode.allow_non_fake_inputs, mode.fake_tensor_converter
    if target is not fn:
        mode.allow_non_fake_inputs = True
        mode.fake_tensor_converter = FakeTensorConverter()  # an input of the graph gets a fake of its own
    try:
        with Reach(fn).restored():  # the call of the graph has the effects
            return vm.torch_call(target, args, kwargs)
    finally:
        mode.allow_non_fake_inputs, mode.fake_tensor_converter = held
        remembered.enabled, vm.recorder.symbols.keeps_sizes = before, False


def call_constant(vm: VM, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                  cont: Continuation | None) -> None:
    """assume_constant_result: the function is called now, with the user's own objects, and what it returns is kept."""
    what = note_constant(vm, describe_callable(fn))
    args = tuple([_own(vm, what, value) for value in args])
    kwargs = {name: _own(vm, what, value) for name, value in (kwargs or {}).items()}
    if (changed := changed_trackers(vm.heap)) and Reach((fn, args, tuple(kwargs.values()))).may_read(changed):
        raise Break("SB006", f"{what}, whose result is assumed constant, after objects were changed that it may read")
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
    return value if is_a(value, _STATELESS) else _record(vm, what, value)


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
