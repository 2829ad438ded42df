"""Attribute lookup as CPython defines it, so that every read has a source.

    load_attr(vm, obj, "n")  ->  the value goes to the current frame's stack (or to `cont`)

object.__getattribute__, type.__getattribute__, super, modules and tensors each have their own walk; all
share the descriptor protocol in `bind`.
"""

from __future__ import annotations

import enum
import threading
import types
import weakref
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.reference import TRUSTED_TYPES
from stator.heap.box import Box
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Shape
from stator.interp import tensor_bookkeeping
from stator.interp.arrays import read_array_attribute
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find, is_mutable_class, mro_of
from stator.kinds import is_a
from stator.native.rows_declare import INSTANCE_METHOD
from stator.shapes.values import SYMBOLIC, specialise
from stator.source import Attr, CallOf, DictOf, Key, Pinned

_object_getattribute = object.__getattribute__
_PLAIN_FUNCTIONS = (types.FunctionType,)
_SELF_STANDING = (types.FunctionType, types.BuiltinFunctionType)


class FallbackGetattr(Continuation):
    """After a Python `__getattribute__`: on AttributeError, ask `__getattr__`."""

    __slots__ = ("obj", "name", "cont")

    def __init__(self, obj: Any, name: str, cont: Any) -> None:
        self.obj, self.name, self.cont = obj, name, cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.give(value, self.cont)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        hook = find(vm, type(self.obj), "__getattr__")
        if not is_a(exc, AttributeError) or hook is MISSING:
            return self.cont is not None and self.cont.raised(vm, frame, exc)
        vm.call(hook, (self.obj, self.name), {}, NamesAttribute(self.obj, self.name, self.cont))
        return True


class NamesAttribute(Continuation):
    """After `__getattr__`: an AttributeError that does not say which attribute of what is told so, as CPython does."""

    __slots__ = ("obj", "name", "cont")
    resumes, plain, held = True, ("name",), ("obj",)

    def __init__(self, obj: Any, name: str, cont: Any) -> None:
        self.obj, self.name, self.cont = obj, name, cont

    def returned(self, vm: Any, frame: Frame, value: Any) -> None:
        vm.give(value, self.cont)

    def raised(self, vm: Any, frame: Frame, exc: BaseException) -> bool:
        if is_a(exc, AttributeError) and _NAME.__get__(exc) is None and _OBJ.__get__(exc) is None \
                and not vm.is_from_outside(exc):
            _NAME.__set__(exc, self.name)
            _OBJ.__set__(exc, self.obj)
        return self.cont is not None and self.cont.raised(vm, frame, exc)


_NAME, _OBJ = AttributeError.__dict__["name"], AttributeError.__dict__["obj"]


def load_attr(vm: Any, obj: Any, name: str, cont: Any = None) -> None:
    cls = type(obj)
    if cls is FakeTensor:
        return load_tensor_attr(vm, obj, name, cont)
    if cls in SYMBOLIC:
        return load_attr(vm, specialise(obj, f"the attribute {name}"), name, cont)
    if is_a(obj, type):
        return load_type_attr(vm, obj, name, cont)
    if cls is super:
        return load_super_attr(vm, obj, name, cont)
    if is_a(obj, types.ModuleType):
        return load_module_attr(vm, obj, name, cont)
    getattribute = find(vm, cls, "__getattribute__")
    if type(getattribute) is types.WrapperDescriptorType:
        if cls is types.MethodType:
            return load_method_object_attr(vm, obj, name, cont)
        if getattribute in _C_LOOKUPS:
            return vm.give(read_through_c(vm, obj, name), cont)
        return load_generic(vm, obj, name, cont)
    vm.call(getattribute, (obj, name), {}, FallbackGetattr(obj, name, cont))


def read_through_c(vm: Any, obj: Any, name: str) -> Any:
    """An attribute that only C code can find: of a threading.local it is this thread's, asked again by a guard."""
    if type(obj) is not threading.local:
        raise Break("SB005", f"an attribute of a {type(obj).__name__}")
    source = CallOf(Pinned(getattr), (vm.heap.source_of(obj), Pinned(name)))
    if source not in vm.heap.answers:
        try:
            value = getattr(vm.heap.original_of(obj), name)
        except AttributeError:
            raise Break("SB005", f"a threading.local without {name!r} in this thread") from None
        vm.heap.answers[source] = vm.heap.adopt(value, source)
    return vm.heap.answers[source]


_C_LOOKUPS = {cls.__dict__["__getattribute__"]
              for cls in (threading.local, weakref.ProxyType, weakref.CallableProxyType)}


def load_generic(vm: Any, obj: Any, name: str, cont: Any, fallback: bool = True) -> None:
    """object.__getattribute__, then `__getattr__` where the caller is not __getattribute__ itself."""
    cls = type(obj)
    descr = find(vm, cls, name)
    if fallback and descr is not MISSING and type(descr) not in _NON_DATA \
            and find(vm, cls, "__getattr__") is not MISSING:
        cont = FallbackGetattr(obj, name, cont)  # a getter may raise AttributeError
    if descr is not MISSING and type(descr) not in _PLAIN_FUNCTIONS and is_data_descriptor(vm, descr):
        return bind(vm, descr, obj, cls, cont)
    value = read_instance_dict(vm, obj, name)
    if value is not MISSING:
        return vm.give(value, cont)
    if descr is not MISSING:
        return bind(vm, descr, obj, cls, cont)
    if fallback:
        hook = find(vm, cls, "__getattr__")
        if hook is _module_getattr:
            value = read_module_member(vm, obj, name)
            if value is not MISSING:
                return vm.give(value, cont)
        if hook is not MISSING:
            return vm.call(hook, (obj, name), {}, NamesAttribute(obj, name, cont))
    raise_attribute_error(vm, obj, name, f"{type(obj).__name__!r} object has no attribute {name!r}", cont)


def raise_attribute_error(vm: Any, obj: Any, name: str, text: str, cont: Any) -> None:
    error = AttributeError(text, name=name, obj=obj)
    if cont is not None and cont.raised(vm, vm.frame, error):
        return
    raise Raised(error)


_module_getattr = torch.nn.Module.__getattr__
_MEMBER_DICTS = ("_parameters", "_buffers", "_modules")


def read_module_member(vm: Any, module: Any, name: str) -> Any:
    """What nn.Module.__getattr__ would find; its three dicts are plain dicts, checked here."""
    own = instance_dict(module)
    for member in _MEMBER_DICTS:
        members = own.get(member, MISSING)  # type: ignore[union-attr]
        if type(members) is Box:
            members = members.force()
        if type(members) is not dict:
            return MISSING
        value = read_dict(vm, members, name)
        if value is not MISSING:
            return value
    return MISSING


def read_dict(vm: Any, mapping: dict[Any, Any], key: Any) -> Any:
    """One constant key of a dict that is a shadow or fresh; MISSING is guarded too."""
    value = dict.get(mapping, key, MISSING)
    if type(value) is Box:
        return value.force()
    if value is MISSING:
        tracker = vm.heap.by_standin.get(id(mapping))
        if tracker is not None and key not in tracker.initial:
            vm.heap.guard(tracker.source, Kind.ABSENT, key)
    return value


def read_instance_dict(vm: Any, obj: Any, name: str) -> Any:
    own = instance_dict(obj)
    if own is None:
        return MISSING
    if vm.own_attributes and id(obj) in vm.own_attributes:
        written = vm.own_attributes[id(obj)][1]
        if name in written:
            return written[name]
    value = own.get(name, MISSING)
    if type(value) is Box:
        return value.force()
    heap = vm.heap
    tracker = heap.by_standin.get(id(obj))
    if tracker is not None and tracker.shape is not Shape.OPAQUE:
        if value is MISSING and (tracker.initial_dict is None or name not in tracker.initial_dict):
            heap.guard(DictOf(tracker.source), Kind.ABSENT, name)
        return value
    if is_outside(vm, obj):  # an object that stands for itself: its attributes are read with guards
        base = DictOf(heap.source_of(obj))
        if value is MISSING:
            heap.guard(base, Kind.ABSENT, name)
            return MISSING
        return heap.adopt(value, Key(base, name))
    return value


def is_outside(vm: Any, obj: Any) -> bool:
    """Whether an object without a shadow comes from outside the trace."""
    if is_a(obj, (type, types.FunctionType, types.ModuleType)):
        return id(obj) not in vm.fresh
    return is_a(obj, _ENUM) and is_known_member(vm, obj) or id(obj) in vm.heap.by_standin


def is_known_member(vm: Any, member: Any) -> bool:
    """Whether an enum member existed before the trace (a flag may be put together during it)."""
    cls = type(member)
    if id(cls) in vm.fresh:
        return False
    names = cls.__dict__.get("_member_map_", {}), cls.__dict__.get("_value2member_map_", {})
    return any(member is known for members in names for known in members.values())


_ENUM = enum.Enum


# ---------------------------------------------------------------------- descriptors

def is_data_descriptor(vm: Any, descr: Any) -> bool:
    cls = type(descr)
    if cls is property or cls is types.MemberDescriptorType or cls is types.GetSetDescriptorType:
        return True
    if cls in _NON_DATA:
        return False
    return find(vm, cls, "__get__") is not MISSING and (
        find(vm, cls, "__set__") is not MISSING or find(vm, cls, "__delete__") is not MISSING)


_NON_DATA = {types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType,
             types.BuiltinFunctionType, types.ClassMethodDescriptorType, int, str, float, bool, tuple, list, dict,
             type(None), type}


def bind(vm: Any, descr: Any, obj: Any, owner: type, cont: Any) -> None:
    """The value of a class attribute seen through an instance."""
    cls = type(descr)
    if cls is types.FunctionType:
        return vm.give(types.MethodType(descr, obj), cont)
    if cls is property:
        if descr.fget is None:
            return raise_attribute_error(
                vm, obj, "",
                f"property {_property_name(owner, descr)!r} of {owner.__qualname__!r} object has no getter", cont)
        return vm.call(descr.fget, (obj,), {}, cont)
    if cls is classmethod:
        return bind_class_method(vm, descr, owner, cont)
    if cls is staticmethod:
        return vm.give(adopt_entry(vm, descr.__func__, owner), cont)
    if cls in _C_METHODS:
        return vm.give(descr.__get__(obj, owner), cont)
    if cls is types.MemberDescriptorType or cls is types.GetSetDescriptorType:
        return read_c_member(vm, descr, obj, cont)
    if cls is INSTANCE_METHOD:
        return vm.give(types.MethodType(descr.__func__, obj), cont)
    getter = find(vm, cls, "__get__")
    if getter is MISSING or is_a(descr, type):
        return vm.give(adopt_entry(vm, descr, owner), cont)
    if type(getter) is types.FunctionType:
        return vm.call(getter, (adopt_entry(vm, descr, owner), obj, owner), {}, cont)
    vm.call(getter, (adopt_entry(vm, descr, owner), obj, owner), {}, cont)


def bind_class_method(vm: Any, descr: Any, owner: type, cont: Any) -> None:
    func = descr.__func__
    if type(func) is types.FunctionType:
        return vm.give(types.MethodType(func, owner), cont)
    getter = find(vm, type(func), "__get__")
    if getter is MISSING:
        return vm.give(types.MethodType(adopt_entry(vm, func, owner), owner), cont)
    vm.call(getter, (adopt_entry(vm, func, owner), owner, owner), {}, cont)


def _property_name(owner: type, descr: property) -> str:
    for base in mro_of(owner):
        for name, value in base.__dict__.items():
            if value is descr:
                return name
    return "?"


_C_METHODS = {types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType}


def adopt_entry(vm: Any, value: Any, owner: type) -> Any:
    """A plain value found on a class: its identity is guarded, what is inside it is adopted."""
    if type(value) is FakeTensor or type(value) in SYMBOLIC or id(value) in vm.heap.by_standin:
        return value
    for base in mro_of(owner):
        if any(v is value for v in vm.class_overlays.get(base, {}).values()):
            return value  # put there during the trace
        if any(v is value for v in base.__dict__.values()):
            if id(base) in vm.fresh:
                return value
            break  # a class made in the trace may inherit it from one that was there before
    else:
        if id(owner) in vm.fresh:
            return value
    return vm.heap.adopt(value, Pinned(value))


def read_c_member(vm: Any, descr: Any, obj: Any, cont: Any) -> None:
    """A C-level attribute: a slot, `__dict__`, `__class__`, `func.__name__`, `exc.args`, ..."""
    name = descr.__name__
    heap = vm.heap
    if id(obj) in vm.autograd_nodes:
        raise Break("SB016", f"{name} of a grad_fn")
    if name == "__dict__" and not is_a(obj, (types.FunctionType, type, types.ModuleType)):
        tracker = heap.by_standin.get(id(obj))
        if tracker is not None:
            if tracker.shape is Shape.OPAQUE:
                raise Break("SB005", f"__dict__ of a {type(obj).__name__}")
        own = descr.__get__(obj)
        if type(own) is dict:
            heap.note_namespace(own, obj, tracker)
        return vm.give(own, cont)
    if type(obj) is numpy.ndarray:
        return vm.give(read_array_attribute(vm, obj, name, descr), cont)
    if name == "__traceback__" and id(obj) in heap.by_standin:
        raise Break("SB020", "the traceback of an exception from outside")
    if type(obj) is types.FrameType and (name not in ("f_code", "f_lineno", "f_lasti") or name != "f_code" and any(
            obj is body.shown for body in vm.generators.values())):
        raise Break("SB020", f"{name} of a frame")
    if id(obj) in vm.generators and name != "__name__" and name != "__qualname__":
        return vm.give(generator_attribute(vm.generators[id(obj)], name), cont)
    try:
        # A descriptor takes None for "no object".
        value = descr.__get__(obj) if obj is not None else object.__getattribute__(None, name)
    except AttributeError as error:
        tracker = heap.by_standin.get(id(obj))
        if tracker is not None and type(descr) is types.MemberDescriptorType and tracker.initial_slots is not None \
                and descr not in tracker.initial_slots:
            heap.guard(tracker.source, Kind.SLOT_EMPTY, (name, descr.__objclass__))
        if cont is not None and cont.raised(vm, vm.frame, error):
            return None
        raise Raised(error) from None
    if type(value) is Box:
        value = value.force()
    elif is_a(obj, _SELF_STANDING) and id(obj) not in vm.fresh:
        value = heap.adopt(value, Attr(heap.source_of(obj), name))
    elif (tracker := heap.by_standin.get(id(obj))) is not None and tracker.shape is Shape.OPAQUE:
        if type(obj) not in TRUSTED_TYPES:
            raise Break("SB005", f"{name} of a {type(obj).__name__}, which no guard can read")
        value = heap.adopt(value, Attr(tracker.source, name))
    vm.give(value, cont)


def generator_attribute(body: Any, name: str) -> Any:
    """gi_code and its like, as the interpreted body has them."""
    kind = name.partition("_")[2].replace("await", "yieldfrom")
    if kind == "code":
        return body.code
    if kind == "running":
        return body.running
    if kind == "yieldfrom":
        return body.delegate()
    if kind == "suspended":
        return body.started and not body.running and not body.done
    if kind == "frame":
        return body.frame_object()
    raise Break("SB008", f"{name} of a generator")


# ---------------------------------------------------------------------- classes, super, modules

def load_type_attr(vm: Any, cls: type, name: str, cont: Any, fallback: bool = True) -> None:
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
    raise_attribute_error(vm, cls, name, f"type object {cls.__name__!r} has no attribute {name!r}", cont)


def read_type_member(vm: Any, cls: type, descr: Any, cont: Any) -> None:
    if descr.__name__ == "__dict__" and id(cls) not in vm.fresh and is_mutable_class(cls):
        if vm.class_overlays.get(cls):
            raise Break("SB006", f"__dict__ of the class {cls.__name__}, which was changed in the trace")
        return vm.give(vm.heap.class_view(cls), cont)
    try:
        value = descr.__get__(cls)
    except AttributeError as error:
        raise_attribute_error(vm, cls, descr.__name__, str(error), cont)
        return
    if id(cls) not in vm.fresh and is_a(value, (dict, list, set)):
        value = vm.heap.adopt(value, Pinned(value))
    vm.give(value, cont)


def bind_on_class(vm: Any, entry: Any, cls: type, cont: Any) -> None:
    """A class attribute read from the class itself: descr.__get__(None, cls)."""
    kind = type(entry)
    if kind is types.FunctionType or kind is property:
        return vm.give(entry, cont)
    if kind is classmethod:
        return bind_class_method(vm, entry, cls, cont)
    if kind is staticmethod:
        return vm.give(adopt_entry(vm, entry.__func__, cls), cont)
    if kind in _C_METHODS or kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
        return vm.give(entry.__get__(None, cls), cont)
    getter = find(vm, kind, "__get__")
    if getter is MISSING or is_a(entry, type):
        return vm.give(adopt_entry(vm, entry, cls), cont)
    vm.call(getter, (adopt_entry(vm, entry, cls), None, cls), {}, cont)


def load_super_attr(vm: Any, proxy: Any, name: str, cont: Any) -> None:
    """super(): the MRO of the object's class, after the class that asks."""
    start, obj, obj_type = proxy.__thisclass__, proxy.__self__, proxy.__self_class__
    if obj_type is not None and name != "__class__":
        order = mro_of(obj_type) or ()  # a class in the making has none yet
        for base in order[order.index(start) + 1:] if start in order else ():
            overlay = vm.class_overlays.get(base, {})
            if name in overlay or name in base.__dict__:
                entry = overlay[name] if name in overlay else base.__dict__[name]
                find(vm, base, name)  # guards the entry
                if obj is obj_type:  # super() in a class method
                    if type(entry) is types.FunctionType:
                        return vm.give(entry, cont)
                    return bind_on_class(vm, entry, obj_type, cont)
                return bind(vm, entry, obj, obj_type, cont)
            find(vm, base, name) if id(base) not in vm.fresh else None
    descr = find(vm, super, name)
    if descr is not MISSING:
        return bind(vm, descr, proxy, super, cont)
    raise_attribute_error(vm, proxy, name, f"'super' object has no attribute {name!r}", cont)


def load_module_attr(vm: Any, module: types.ModuleType, name: str, cont: Any, ask_class: bool = True) -> None:
    """ModuleType.__getattribute__, then (with `ask_class`) the `__getattr__` of a module's own class."""
    namespace = module.__dict__
    scope = vm.heap.scope(namespace)
    descr = find(vm, type(module), name)
    if descr is not MISSING and is_data_descriptor(vm, descr):
        if name == "__dict__":
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
    own_name = instance_dict(module).get("__name__") if instance_dict(module) else None  # type: ignore[union-attr]
    shown = f"module {own_name!r}" if type(own_name) is str else "module"
    raise_attribute_error(vm, module, name, f"{shown} has no attribute {name!r}", cont)


def load_method_object_attr(vm: Any, method: types.MethodType, name: str, cont: Any) -> None:
    descr = find(vm, types.MethodType, name)
    if descr is not MISSING:
        return bind(vm, descr, method, types.MethodType, cont)
    load_attr(vm, method.__func__, name, cont)


# ---------------------------------------------------------------------- tensors

def tensor_class(vm: Any, fake: Any) -> type:
    """The type the program sees: Tensor or Parameter, never FakeTensor."""
    tracker = vm.heap.by_standin.get(id(fake))
    if tracker is not None:
        return type(tracker.original)
    return torch.nn.Parameter if getattr(fake, "_is_param", False) else torch.Tensor


def load_tensor_attr(vm: Any, fake: Any, name: str, cont: Any) -> None:
    cls = tensor_class(vm, fake)
    own = vm.tensor_attributes.get(id(fake))
    if own is not None and name in own:
        return vm.give(own[name], cont)
    descr = find(vm, cls, name)
    tracker = vm.heap.by_standin.get(id(fake))
    if descr is MISSING or type(descr) in _PLAIN_FUNCTIONS:
        if tracker is not None and tracker.initial_dict is not None and name in tracker.initial_dict:
            return vm.give(tracker.initial_dict[name].force(), cont)
        if descr is MISSING:
            if tracker is not None:
                vm.heap.guard(DictOf(tracker.source), Kind.ABSENT, name)
            return raise_attribute_error(vm, fake, name, f"{cls.__name__!r} object has no attribute {name!r}", cont)
    noted = tensor_bookkeeping.read(vm, fake, name)
    if noted is not tensor_bookkeeping.NOT_NOTED:
        return vm.give(noted, cont)
    if type(descr) in (types.GetSetDescriptorType, property, types.MemberDescriptorType):
        if name == "__class__":
            return vm.give(cls, cont)
        if type(descr) is property and type(descr.fget) is types.FunctionType and not vm.is_torch_leaf(descr.fget):
            return vm.call(descr.fget, (fake,), {}, cont)
        return vm.give(vm.torch_attribute(fake, name, descr), cont)
    bind(vm, descr, fake, cls, cont)

