"""Attributes of classes, super objects, modules and methods.   obj, name  ->  its value, guarded"""

from __future__ import annotations

import types
import warnings
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.records import Scope
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import Continuation
from stator.interp.lookup import MISSING, ancestors, find, guard_field, is_mutable_class
from stator.interp.objects.descriptors import (
    C_METHODS,
    FallbackGetattr,
    adopt_entry,
    bind,
    bind_class_method,
    is_data_descriptor,
    raise_attribute_error,
)
from stator.interp.services import VM
from stator.source import DictOf, Key, Pinned

_dict_of_module = vars(types.ModuleType)["__dict__"]
_namespace_of = _dict_of_module.__get__  # whatever a module's class says about lookups
_OF_FILTERS = frozenset({"filters", "showwarning", "onceregistry", "_filters_mutated", "_showwarnmsg_impl"})


def load_type_attr(vm: VM, cls: type, name: str, cont: Continuation | None, fallback: bool = True) -> None:
    """type.__getattribute__"""
    meta = type(cls)
    meta_getattribute = find(vm, meta, "__getattribute__")
    if type(meta_getattribute) is types.FunctionType and fallback:
        return vm.call(meta_getattribute, (cls, name), {}, FallbackGetattr(cls, name, cont))
    meta_descr = find(vm, meta, name)
    if meta_descr is not MISSING and is_data_descriptor(vm, meta_descr):
        if type(meta_descr) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return read_type_member(vm, cls, meta_descr, cont)
        return bind(vm, meta_descr, cls, meta, cont)
    entry = find(vm, cls, name)
    if entry is not MISSING:
        return bind_on_class(vm, entry, cls, cont)
    if meta_descr is not MISSING:
        return bind(vm, meta_descr, cls, meta, cont)
    hook = find(vm, meta, "__getattr__")
    if hook is not MISSING and fallback:
        return vm.call(hook, (cls, name), {}, cont)
    raise_attribute_error(vm, cls, name, f"type object {name_in_errors(cls)!r} has no attribute {name!r}", cont)


def read_type_member(vm: VM, cls: type, descr: Any, cont: Any) -> None:
    if descr.__name__ == "__dict__" and id(cls) not in vm.fresh and is_mutable_class(cls):
        if vm.classes.overlays.get(cls):
            raise Break("SB006", f"__dict__ of the class {cls.__name__}, which was changed in the trace")
        return vm.give(vm.heap.class_view(cls), cont)
    if descr.__objclass__ is type and is_mutable_class(cls) and id(cls) not in vm.fresh:
        guard_member(vm, cls, descr.__name__)
    try:
        value = descr.__get__(cls)
    except AttributeError as error:
        raise_attribute_error(vm, cls, descr.__name__, str(error), cont)
        return
    if id(cls) not in vm.fresh and is_a(value, (dict, list, set)):
        value = vm.heap.adopt(value, Pinned(value))
    vm.give(value, cont)


def guard_member(vm: VM, cls: type, name: str) -> None:
    """What a class's own C attribute follows from: a field, or an entry of its dict."""
    if name in ("__mro__", "__bases__", "__name__", "__qualname__"):
        guard_field(vm, cls, name)
    elif name == "__base__":
        guard_field(vm, cls, "__bases__")
    elif name in ("__module__", "__doc__", "__annotations__", "__abstractmethods__"):
        own = type.__dict__["__dict__"].__get__(cls)
        if name == "__annotations__" and name not in own:
            raise Break("SB006", f"the annotations of the class {cls.__name__}, which reading makes", once=True)
        if name in own:
            vm.heap.guard(Key(DictOf(Pinned(cls)), name), Kind.ID, own[name])
        else:
            vm.heap.guard(DictOf(Pinned(cls)), Kind.ABSENT, name)


def bind_on_class(vm: VM, entry: Any, cls: type, cont: Any) -> None:
    """A class attribute read from the class itself: descr.__get__(None, cls)."""
    kind = type(entry)
    if kind is types.FunctionType:
        return vm.give(entry, cont)
    if kind is property:
        return vm.give(adopt_entry(vm, entry, cls), cont)
    if kind is classmethod:
        return bind_class_method(vm, entry, cls, cont)
    if kind is staticmethod:
        return vm.give(adopt_entry(vm, entry.__func__, cls), cont)
    if kind in C_METHODS or kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
        return vm.give(entry.__get__(None, cls), cont)
    getter = find(vm, kind, "__get__")
    if getter is MISSING or is_a(entry, type):
        return vm.give(adopt_entry(vm, entry, cls), cont)
    vm.call(getter, (adopt_entry(vm, entry, cls), None, cls), {}, cont)


class TensorSuper:
    """super() of a tensor subclass, whose object the interpreter has as a fake of another class."""

    __slots__ = ("__thisclass__", "__self__", "__self_class__")

    def __init__(self, start: type, fake: FakeTensor, cls: type) -> None:
        self.__thisclass__, self.__self__, self.__self_class__ = start, fake, cls


def load_super_attr(vm: VM, proxy: Any, name: str, cont: Continuation | None) -> None:
    """super(): the MRO of the object's class, after the class that asks."""
    start, obj, obj_type = proxy.__thisclass__, proxy.__self__, proxy.__self_class__
    if obj_type is not None and name != "__class__":
        order = ancestors(vm, obj_type)
        for base in order[order.index(start) + 1:] if start in order else ():
            overlay, own = vm.classes.overlays.get(base, {}), names_of_class(base)
            if name in overlay or name in own:
                entry = overlay[name] if name in overlay else own[name]
                find(vm, base, name)  # guards the entry
                if obj is obj_type:  # super() in a class method
                    if type(entry) is types.FunctionType:
                        return vm.give(entry, cont)
                    return bind_on_class(vm, entry, obj_type, cont)
                if type(proxy) is TensorSuper:
                    return vm.give_tensor_member(obj, obj_type, name, entry, cont)
                return bind(vm, entry, obj, obj_type, cont)
            find(vm, base, name) if id(base) not in vm.fresh else None
    cls = type(proxy) if is_a(proxy, super) else super
    descr = find(vm, cls, name)
    if descr is not MISSING:
        return bind(vm, descr, proxy, cls, cont)
    raise_attribute_error(vm, proxy, name, f"{cls.__name__!r} object has no attribute {name!r}", cont)


class OwnNames:
    """The names of a module that the trace itself has made, read and written as those of an outside one are."""

    __slots__ = ("vm", "module")

    def __init__(self, vm: VM, module: types.ModuleType) -> None:
        self.vm, self.module = vm, module

    def read(self, name: str) -> Any:
        return self.module.__dict__.get(name, MISSING)

    def write(self, name: str, value: object) -> None:
        if value is MISSING:
            del self.module.__dict__[name]
        else:
            self.module.__dict__[name] = value

    def view(self) -> dict[str, Any]:
        self.vm.heap.note_namespace(self.module.__dict__, self.module, None)
        return self.module.__dict__


def names_of(vm: VM, module: types.ModuleType) -> OwnNames | Scope:
    return OwnNames(vm, module) if id(module) in vm.fresh else vm.heap.scope(_namespace_of(module))


def load_module_attr(vm: VM, module: types.ModuleType, name: str, cont: Continuation | None,
                     ask_class: bool = True) -> None:
    """ModuleType.__getattribute__, then (with `ask_class`) the `__getattr__` of a module's own class."""
    if module is warnings and (vm.warnings.changed or vm.warnings.managers) and name in _OF_FILTERS:
        raise Break("SB006", f"warnings.{name} is read after the filters were changed")
    scope = names_of(vm, module)
    descr = find(vm, type(module), name)
    if descr is not MISSING and is_data_descriptor(vm, descr):
        if descr is _dict_of_module:
            return vm.give(scope.view(), cont)
        return bind(vm, descr, module, type(module), cont)
    value = scope.read(name)
    if value is not MISSING:
        return vm.give(value, cont)
    if descr is not MISSING:
        return bind(vm, descr, module, type(module), cont)
    hook = scope.read("__getattr__")
    if hook is not MISSING:
        return vm.call(hook, (name,), {}, cont)
    hook = find(vm, type(module), "__getattr__") if ask_class else MISSING
    if hook is not MISSING:
        return vm.call(hook, (module, name), {}, cont)
    own_name = scope.read("__name__")
    shown = f"module {own_name!r}" if type(own_name) is str else "module"
    raise_attribute_error(vm, module, name, f"{shown} has no attribute {name!r}", cont)
