"""Calls of classes.   class, arguments  ->  the metaclass's __call__, or __new__ and __init__ in turn"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.fx.nodes import field_names, record_arguments
from stator.graph.metadata.input_layouts import acts_as_wrapper
from stator.heap.raw_access import CONSTANT_TYPES
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import is_a, module_of, mro_of, name_in_errors
from stator.interp.calls import module_copies
from stator.interp.calls.allowed_calls import refuse_disabled
from stator.interp.frame import Continuation, Frame, Raised, raising
from stator.interp.lookup import MISSING, find, flags_of, guard_metaclass
from stator.interp.objects.attributes import tensor_class
from stator.interp.objects.descriptors import C_METHODS
from stator.interp.services import VM
from stator.native.table import lookup

_NO_INSTANCES = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION


class Initialise(Continuation):
    """After `__init__`: the new object is the value of the call."""

    __slots__ = ("obj", "cont")
    resumes, held = True, ("obj",)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        if value is not None:
            raise Raised(TypeError(f"__init__() should return None, not '{name_in_errors(type(value))}'"))
        vm.give(self.obj, self.cont)


class AfterNew(Continuation):
    """After a Python `__new__`: run `__init__` if the object is an instance of the class."""

    __slots__ = ("cls", "args", "kwargs", "cont")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        initialise(vm, self.cls, value, self.args, self.kwargs, self.cont)


def call_class(vm: VM, cls: type, args: Any, kwargs: Any, cont: Any) -> None:
    """type.__call__, unless the metaclass has its own."""
    refuse_disabled(cls)
    meta = type(cls)
    guard_metaclass(vm, cls)
    if meta is not type:
        meta_call = find(vm, meta, "__call__")
        if type(meta_call) is types.FunctionType:
            return vm.call(meta_call, (cls, *args), kwargs, cont)
        if type(meta_call) is not types.WrapperDescriptorType:
            return vm.call(vm.special_method(cls, "__call__", ""), args, kwargs, cont)
    instantiate(vm, cls, args, kwargs, cont)


def instantiate(vm: VM, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], cont: Continuation | None) -> None:
    if lookup(cls) is not None or module_copies.declare(cls) and lookup(cls) is not None:
        return vm.call_native(cls, args, kwargs, cont)
    if flags_of(cls) & _NO_INSTANCES:
        return vm.give(vm.native_unhooked(cls, args, kwargs), cont)  # raises
    if torch.Tensor in cls.__mro__ and acts_as_wrapper(cls):
        return vm.give(new_wrapper(vm, cls, args, kwargs or {}), cont)
    new = find(vm, cls, "__new__")
    if type(new) is staticmethod:
        new = new.__func__
    if type(new) is types.BuiltinFunctionType and _is_put_there(cls, new):
        if id(cls) not in vm.fresh or vm.classes.overlays or new is not object.__new__ and is_a(new.__self__, type) \
                and new.__self__ in mro_of(cls) or find(vm, cls, "__del__") is not MISSING:
            raise Break("SB001", f"{cls.__qualname__} has the __new__ of another class written in C")
        return vm.give(vm.native(type.__call__, (cls, *args), kwargs), cont)  # which `__new__` its slot has, C knows
    if (finalizer := find(vm, cls, "__del__")) is not MISSING:
        if id(finalizer) not in vm.functions.callbacks:
            raise Break("SB019", f"{cls.__name__} has a finalizer (__del__)")
        vm.classes.finalized.add(cls)
    if new is object.__new__:
        return initialise(vm, cls, new_plain_object(vm, cls, args, kwargs), args, kwargs, cont)
    if type(new) is types.FunctionType or type(new) is types.BuiltinFunctionType:
        return vm.call(new, (cls, *args), kwargs, AfterNew(cls, args, kwargs, cont))
    if type(new) is classmethod and type(new.__func__) is types.FunctionType:  # bound to the class, which comes again
        return vm.call(new.__func__, (cls, cls, *args), kwargs, AfterNew(cls, args, kwargs, cont))
    raise Break("SB001", f"{module_of(cls)}.{cls.__qualname__} has a __new__ written in C")


def new_wrapper(vm: VM, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A wrapper subclass: its constructor runs on fakes, and again in the graph, on tensors and constants alone."""
    if id(cls) in vm.fresh:
        raise Break("SB017", f"a {cls.__name__}, a wrapper class made inside")
    vm.heap.expose_deep((args, kwargs))
    require_graph_values(vm, cls, (tuple(args), dict(kwargs)))
    for name in ("__new__", "__init__", "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__"):
        find(vm, cls, name)
    return raising(vm.recorder.wrappers.construct, cls, tuple(args), dict(kwargs))


def require_graph_values(vm: VM, cls: type, given: object) -> None:
    """Break on an argument that no node can make: a node makes frozen dataclasses again from their fields."""
    for value in pytree.tree_leaves(given):
        if type(value) is FakeTensor or type(value) in CONSTANT_TYPES or is_a(value, type):
            continue
        names = field_names(type(value))
        if names is None or id(type(value)) in vm.fresh or vm.heap.tracker_of(value) is not None:
            raise Break("SB017", f"a {cls.__name__} made of a {type(value).__name__}")
        require_graph_values(vm, cls, list(record_arguments(value, names).values()))


def new_plain_object(vm: VM, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """object.__new__: extra arguments are an error only if `__init__` is object's, too."""
    if type(cls) is not type:
        find(vm, cls, "__abstractmethods__")  # whether it refuses
    if (args or kwargs) and (not vm.classes.overlays or find(vm, cls, "__init__") is object.__init__):
        return vm.native_unhooked(object.__new__, (cls, *args), kwargs)  # it knows of a `__new__` that was deleted
    return vm.native_unhooked(object.__new__, (cls,))


def _is_put_there(cls: type, new: object) -> bool:
    """Whether a Python class holds the `__new__` of a C class from which it would not inherit it."""
    for base in mro_of(cls):
        own = names_of_class(base).get("__new__")
        if own is not None and (own is not new or new.__self__ is base):
            return own is not new
    return False


def initialise(vm: VM, cls: type, obj: object, args: tuple[Any, ...], kwargs: dict[str, Any],
               cont: Continuation | None) -> None:
    seen = tensor_class(vm, obj) if type(obj) is FakeTensor else type(obj)
    if cls not in mro_of(seen):
        return vm.give(obj, cont)
    init = find(vm, seen, "__init__")
    if init is object.__init__:
        return vm.give(obj, cont)
    if type(init) is types.FunctionType or type(init) in C_METHODS:
        return vm.call(init, (obj, *args), kwargs, Initialise(obj, cont))
    vm.call(vm.sync(lambda: vm.bind(init, obj, seen)), args, kwargs, Initialise(obj, cont))
