"""Descriptors, and attributes of classes, super objects and modules.   an entry of a class  ->  its value, guarded"""

from __future__ import annotations

import types
import warnings
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.intrinsics import CLASS_METHODS_CHAIN
from stator.guards.guard import Kind
from stator.heap.records import Scope
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import dict_of_class, is_a, mro_of, name_in_errors
from stator.interp.frame import Continuation, Frame
from stator.interp.lookup import MISSING, ancestors, find, guard_field, guard_metaclass, is_mutable_class
from stator.interp.objects.class_views import class_dict, show_attribute
from stator.interp.objects.native_attributes import raise_to, read_c_member
from stator.interp.services import VM
from stator.native.rows_declare import INSTANCE_METHOD
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import DictOf, Key, Pinned

_NAME, _OBJ = AttributeError.__dict__["name"], AttributeError.__dict__["obj"]
NON_DATA = {types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType,
             types.BuiltinFunctionType, types.ClassMethodDescriptorType, int, str, float, bool, tuple, list, dict,
             type(None), type}
_UNBOUND_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
C_METHODS = {types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType}
_dict_of_module = vars(types.ModuleType)["__dict__"]
namespace_of_module = _dict_of_module.__get__  # whatever a module's class says about lookups
_OF_FILTERS = frozenset({"filters", "showwarning", "onceregistry", "_filters_mutated", "_showwarnmsg_impl"})



class FallbackGetattr(Continuation):
    """After a Python `__getattribute__`: on AttributeError, call `__getattr__`."""

    __slots__ = ("obj", "name", "cont")

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        hook = find(vm, type(self.obj), "__getattr__")
        if not is_a(exc, AttributeError) or hook is MISSING:
            return self.cont is not None and self.cont.raised(vm, frame, exc)
        call_special(vm, hook, self.obj, (self.name,), NamesAttribute(self.obj, self.name, self.cont))
        return True


class NamesAttribute(Continuation):
    """After `__getattr__`: set the name and the object of an AttributeError that has none, as CPython does."""

    __slots__ = ("obj", "name", "cont")
    resumes, plain, held = True, ("name",), ("obj",)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if is_a(exc, AttributeError) and _NAME.__get__(exc) is None and _OBJ.__get__(exc) is None \
                and not vm.is_from_outside(exc):
            _NAME.__set__(exc, self.name)
            _OBJ.__set__(exc, self.obj)
        return self.cont is not None and self.cont.raised(vm, frame, exc)


def raise_attribute_error(vm: VM, obj: object, name: str, cont: Continuation | None, text: str = "") -> None:
    raise_to(vm, cont, AttributeError(text or no_attribute(type(obj), name), name=name, obj=obj))


def no_attribute(cls: type, name: str) -> str:
    return f"{name_in_errors(cls)!r} object has no attribute {name!r}"


def is_data_descriptor(vm: VM, descr: object) -> bool:
    cls = type(descr)
    if cls is property or cls is types.MemberDescriptorType or cls is types.GetSetDescriptorType:
        return True
    if cls in NON_DATA:
        return False
    return find(vm, cls, "__get__") is not MISSING and (
        find(vm, cls, "__set__") is not MISSING or find(vm, cls, "__delete__") is not MISSING)


def sets_attribute(vm: VM, descr: object) -> bool:
    """Whether assignment and deletion go through a class attribute: `__get__` does not count for them."""
    cls = type(descr)
    return is_data_descriptor(vm, descr) or cls not in NON_DATA and (
        find(vm, cls, "__set__") is not MISSING or find(vm, cls, "__delete__") is not MISSING)


def bind(vm: VM, descr: Any, obj: object, owner: type, cont: Any = None) -> None:
    cls = type(descr)
    if cls is types.FunctionType:
        return vm.give(types.MethodType(descr, obj), cont)
    if cls is property:
        if descr.fget is None:
            return raise_missing_accessor(vm, cont, property.__get__, descr, obj, owner)
        return vm.call(descr.fget, (obj,), {}, cont)
    if cls is classmethod:
        return bind_class_method(vm, descr, owner, cont)
    if cls is staticmethod:
        return vm.give(adopt_entry(vm, descr.__func__, owner), cont)
    if cls in C_METHODS:  # their `__get__` takes None for "no object"
        return vm.give(descr.__get__(obj, owner) if obj is not None else getattr(None, descr.__name__, descr), cont)
    if cls is types.MemberDescriptorType or cls is types.GetSetDescriptorType:
        return read_c_member(vm, descr, obj, cont)
    if cls is INSTANCE_METHOD:
        return vm.give(descr.__func__ if obj is None else types.MethodType(descr.__func__, obj), cont)
    getter = find(vm, cls, "__get__")
    if getter is MISSING or is_a(descr, type):
        return vm.give(adopt_entry(vm, descr, owner), cont)
    vm.call(getter, (adopt_entry(vm, descr, owner), obj, owner), {}, cont)  # CPython does not bind it


def bind_class_method(vm: VM, descr: Any, owner: type, cont: object) -> None:
    func = descr.__func__
    if type(func) is types.FunctionType:
        return vm.give(types.MethodType(func, owner), cont)
    getter = find(vm, type(func), "__get__") if CLASS_METHODS_CHAIN else MISSING
    if getter is MISSING:
        adopted = adopt_entry(vm, func, owner)  # what cannot be called makes a method, and fails when it is called
        return vm.give(descr.__get__(None, owner) if adopted is func else types.MethodType(adopted, owner), cont)
    vm.call(getter, (adopt_entry(vm, func, owner), owner, owner), {}, cont)


def raise_missing_accessor(vm: VM, cont: Continuation | None, access: Any, descr: property, *args: object) -> None:
    """Let CPython raise: it alone knows whether the property has a name."""
    try:
        access(descr, *args)
    except AttributeError as error:
        raise_to(vm, cont, error)


def call_special(vm: VM, method: object, obj: object, args: tuple[Any, ...], cont: object) -> None:
    """Call what the class of `obj` has for a special method: it is bound as any other descriptor."""
    if type(method) in _UNBOUND_METHODS:
        return vm.call(method, (obj, *args), {}, cont)
    owner = vm.recorder.services.class_of(obj) if type(obj) is FakeTensor else type(obj)
    vm.call(vm.sync(lambda: bind(vm, method, obj, owner, None)), args, {}, cont)


def adopt_entry(vm: VM, value: object, owner: type) -> Any:
    """A plain value found on a class: its identity is guarded, what is inside it is adopted."""
    if type(value) is FakeTensor or type(value) in SYMBOLIC or id(value) in vm.heap.by_standin:
        return value
    for base in mro_of(owner):
        if any(v is value for v in vm.classes.overlays.get(base, {}).values()):
            return value  # put there during the trace
        if id(value) in map(id, base.__dict__.values()):
            if id(base) in vm.fresh:
                return value
            break  # a class made in the trace may inherit it from one that was there before
    else:
        if id(owner) in vm.fresh:
            return value
    return vm.heap.adopt(value, Pinned(value))


def load_type_attr(vm: VM, cls: type, name: str, cont: Continuation | None, fallback: bool = True) -> None:
    """type.__getattribute__"""
    meta = type(cls)
    if (cls, name) not in vm.classes.lookups:
        guard_metaclass(vm, cls)
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
    raise_attribute_error(vm, cls, name, cont, f"type object {name_in_errors(cls)!r} has no attribute {name!r}")


def read_type_member(vm: VM, cls: type, descr: Any, cont: Any) -> None:
    if descr.__name__ == "__dict__" and id(cls) not in vm.fresh and is_mutable_class(cls):
        return vm.give(class_dict(vm, cls), cont)
    if descr.__name__ == "__annotations__" and makes_annotations(vm, cls):
        return vm.give(vm.classes.overlays[cls]["__annotations__"], cont)
    if descr.__objclass__ is type and is_mutable_class(cls) and id(cls) not in vm.fresh:
        guard_member(vm, cls, descr.__name__)
    try:
        value = descr.__get__(cls)
    except AttributeError as error:
        raise_attribute_error(vm, cls, descr.__name__, cont, str(error))
        return
    if id(cls) not in vm.fresh and is_a(value, (dict, list, set)):
        value = vm.heap.adopt(value, Pinned(value))
    vm.give(value, cont)


def makes_annotations(vm: VM, cls: type) -> bool:
    """Whether a class from outside has no annotations until their first read: then it gets a new dict, before 3.14."""
    if id(cls) in vm.fresh or not is_mutable_class(cls) or "__annotate__" in vars(type):
        return False
    overlay = vm.classes.overlays.get(cls, {})
    if "__annotations__" in dict_of_class(cls) or "__annotations__" in overlay:
        return "__annotations__" in overlay
    vm.heap.guard(DictOf(Pinned(cls)), Kind.ABSENT, "__annotations__")
    vm.classes.overlays.setdefault(cls, {})["__annotations__"] = {}
    show_attribute(vm, cls, "__annotations__")
    vm.classes.lookups.clear()
    return True


def guard_member(vm: VM, cls: type, name: str) -> None:
    """Guard the field or the dict entry behind a C attribute of a class."""
    if name in ("__mro__", "__bases__", "__name__", "__qualname__"):
        guard_field(vm, cls, name)
    elif name == "__base__":
        guard_field(vm, cls, "__bases__")
    elif name in ("__module__", "__doc__", "__annotations__", "__abstractmethods__", "__annotate__", "__type_params__"):
        own = dict_of_class(cls)
        kept = {"__annotations__": "__annotations_cache__", "__annotate__": "__annotate_func__"}.get(name)  # since 3.14
        if kept is not None and name not in own:
            if kept not in own:
                raise Break("SB006", f"the annotations of the class {cls.__name__}, which reading makes", once=True)
            vm.heap.guard(DictOf(Pinned(cls)), Kind.ABSENT, name)
            name = kept
        if name in own:
            vm.heap.guard(Key(DictOf(Pinned(cls)), name), Kind.ID, own[name])
        else:
            vm.heap.guard(DictOf(Pinned(cls)), Kind.ABSENT, name)


def bind_on_class(vm: VM, entry: Any, cls: type, cont: object) -> None:
    """A class attribute read from the class itself: descr.__get__(None, cls)."""
    kind = type(entry)
    if kind is types.FunctionType:
        return vm.give(entry, cont)
    if kind is property:
        return vm.give(adopt_entry(vm, entry, cls), cont)
    if kind in C_METHODS or kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
        return vm.give(entry.__get__(None, cls), cont)
    bind(vm, entry, None, cls, cont)


class TensorSuper:
    """super() of a tensor subclass, whose object the interpreter has as a fake of another class."""

    __slots__ = ("__thisclass__", "__self__", "__self_class__")

    def __init__(self, start: type, fake: FakeTensor, cls: type) -> None:
        self.__thisclass__, self.__self__, self.__self_class__ = start, fake, cls


def load_super_attr(vm: VM, proxy: Any, name: str, cont: Continuation | None) -> None:
    """super(): the MRO of the object's class, after the class that calls it."""
    start, obj, obj_type = [vars(TensorSuper if type(proxy) is TensorSuper else super)[member].__get__(proxy)
                            for member in TensorSuper.__slots__]  # of a proxy for a proxy, its own
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
    raise_attribute_error(vm, proxy, name, cont, f"{cls.__name__!r} object has no attribute {name!r}")


class OwnNames:
    """The names of a module that the trace itself has made, read and written as those of an outside one are."""

    __slots__ = ("vm", "module")

    def __init__(self, vm: VM, module: types.ModuleType) -> None:
        self.vm, self.module = vm, module

    def read(self, name: str) -> Any:
        return namespace_of_module(self.module).get(name, MISSING)

    def write(self, name: str, value: object) -> None:
        if value is MISSING:
            del namespace_of_module(self.module)[name]
        else:
            namespace_of_module(self.module)[name] = value

    def view(self) -> dict[str, Any]:
        self.vm.heap.note_namespace(namespace_of_module(self.module), self.module, None)
        return namespace_of_module(self.module)


def names_of(vm: VM, module: types.ModuleType) -> OwnNames | Scope:
    return OwnNames(vm, module) if id(module) in vm.fresh else vm.heap.scope(namespace_of_module(module))


def load_module_attr(vm: VM, module: types.ModuleType, name: str, cont: Continuation | None,
                     ask_class: bool = True) -> None:
    """ModuleType.__getattribute__, then (with `ask_class`) the `__getattr__` of a module's own class."""
    if module is warnings and (vm.warnings.changed or vm.warnings.managers) and name in _OF_FILTERS:
        raise Break("SB006", f"warnings.{name} is read after the filters were changed")
    scope = names_of(vm, module)
    if isinstance(scope, Scope) and name not in scope.seen:
        vm.heap.guard(Pinned(module), Kind.TYPE, type(module))  # which `module.__class__ = ...` replaces
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
    raise_attribute_error(vm, module, name, cont, f"{shown} has no attribute {name!r}")
