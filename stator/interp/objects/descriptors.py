"""Descriptors, and attributes of classes, super objects and modules.   an entry of a class  ->  its value, guarded"""

from __future__ import annotations

import contextvars
import enum
import types
import warnings
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.guard_semantics import TRUSTED_TYPES
from stator.heap.adopt.instances import box_attributes
from stator.heap.heap import Heap
from stator.heap.records import Scope
from stator.heap.tracker import Box, ShadowKind
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import dict_of_class, is_a, mro_of, name_in_errors
from stator.interp.arrays.native_numpy import read_array_attribute
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING, ancestors, find, guard_field, is_mutable_class
from stator.interp.objects import function_attributes
from stator.interp.objects.class_views import class_dict, show_attribute
from stator.interp.services import VM
from stator.native.rows_declare import INSTANCE_METHOD
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import Attr, CallOf, DictOf, Key, Pinned

_NAME, _OBJ = AttributeError.__dict__["name"], AttributeError.__dict__["obj"]
_SELF_STANDING = (types.FunctionType, types.BuiltinFunctionType)
NON_DATA = {types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType,
             types.BuiltinFunctionType, types.ClassMethodDescriptorType, int, str, float, bool, tuple, list, dict,
             type(None), type}
_UNBOUND_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
C_METHODS = {types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType}
_OF_CONTEXTS = frozenset({"saved_tensors", "needs_input_grad"})
_dict_of_module = vars(types.ModuleType)["__dict__"]
namespace_of_module = _dict_of_module.__get__  # whatever a module's class says about lookups
_OF_FILTERS = frozenset({"filters", "showwarning", "onceregistry", "_filters_mutated", "_showwarnmsg_impl"})
_GENERATOR_FIELDS: dict[str, Any] = {
    "code": lambda body: body.code, "running": lambda body: body.running, "yieldfrom": lambda body: body.delegate(),
    "suspended": lambda body: body.started and not body.running and not body.done,
    "frame": lambda body: body.frame_object()}


def is_outside(vm: VM, obj: object) -> bool:
    """Whether an object without a shadow comes from outside the trace."""
    if is_a(obj, (type, types.FunctionType, types.ModuleType, torch._ops.OpOverloadPacket, torch._ops.OperatorBase)):
        return id(obj) not in vm.fresh
    return is_a(obj, enum.Enum) and is_known_member(vm, obj) or id(obj) in vm.heap.by_standin \
        or is_a(obj, (classmethod, staticmethod)) and id(obj) in vm.heap.sources


def is_known_member(vm: VM, member: object) -> bool:
    """Whether an enum member existed before the trace (a flag may be put together during it)."""
    cls = type(member)
    if id(cls) in vm.fresh:
        return False
    names = cls.__dict__.get("_member_map_", {}), cls.__dict__.get("_value2member_map_", {})
    return any(member is known for members in names for known in members.values())


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


def raise_to(vm: VM, cont: Continuation | None, error: BaseException) -> None:
    """Raise an exception of the program, unless the continuation handles it."""
    if cont is None or not cont.raised(vm, vm.running, error):
        raise Raised(error) from None


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


def bind(vm: VM, descr: Any, obj: Any, owner: type, cont: Any = None) -> None:
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
    if cls is INSTANCE_METHOD and obj is not None:
        return vm.give(types.MethodType(descr.__func__, obj), cont)
    getter = find(vm, cls, "__get__")
    if getter is MISSING or is_a(descr, type):
        return vm.give(adopt_entry(vm, descr, owner), cont)
    vm.call(getter, (adopt_entry(vm, descr, owner), obj, owner), {}, cont)  # CPython does not bind it


def bind_class_method(vm: VM, descr: Any, owner: type, cont: object) -> None:
    func = descr.__func__
    if type(func) is types.FunctionType:
        return vm.give(types.MethodType(func, owner), cont)
    getter = find(vm, type(func), "__get__")
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


def read_c_member(vm: VM, descr: Any, obj: Any, cont: Any) -> None:
    """A C-level attribute: a slot, `__dict__`, `__class__`, `func.__name__`, `exc.args`, ..."""
    name = descr.__name__
    heap = vm.heap
    tracker = heap.by_standin.get(id(obj))
    box = tracker.initial_slots.get(descr) if tracker is not None and tracker.initial_slots else None
    if box is not None and box.forced and id(tracker) not in heap.changes.written:
        return vm.give(box.value, cont)  # a slot that was read before
    if id(obj) in vm.autograd.nodes:
        raise Break("SB016", f"{name} of a grad_fn")
    if name == "__dict__" and not is_a(obj, (types.FunctionType, type, types.ModuleType)):
        if tracker is not None:
            if tracker.shape is ShadowKind.OPAQUE:
                raise Break("SB005", f"__dict__ of a {type(obj).__name__}")
            box_attributes(heap, obj)
        own = descr.__get__(obj)
        if tracker is None and is_outside(vm, obj):
            return vm.give(heap.adopt(own, DictOf(heap.source_of(obj))), cont)
        if type(own) is dict and id(obj) not in heap.dicts.given:
            heap.note_namespace(own, obj, tracker)
        return vm.give(own, cont)
    if type(obj) is numpy.ndarray:
        return vm.give(read_array_attribute(vm, obj, name, descr), cont)
    if name in _OF_CONTEXTS and is_a(obj, torch._C._FunctionBase) and id(obj) in heap.by_standin:
        return vm.give(_read_context(heap, descr, obj), cont)
    if type(obj) is contextvars.Token and name == "old_value" and id(obj) in vm.fresh:
        raise Break("SB005", "old_value of a token of a context variable")  # ours was set in a context of its own
    if name == "__traceback__" and id(obj) in heap.by_standin:
        raise Break("SB020", "the traceback of an exception from outside")
    if type(obj) is types.FrameType and name == "f_globals":
        return vm.give(heap.scope(obj.f_globals).view(), cont)
    if type(obj) is types.FrameType and (name not in ("f_code", "f_lineno", "f_lasti") or name != "f_code" and any(
            obj is body.shown for body in vm.generators.values())):
        raise Break("SB020", f"{name} of a frame")
    if type(obj) is types.FrameType:
        vm.frame_objects.update(obj)
    if id(obj) in vm.generators and name not in ("__name__", "__qualname__", "__class__"):
        return vm.give(generator_attribute(vm.generators[id(obj)], name), cont)
    if type(obj) is types.FunctionType and (kept := function_attributes.read(vm, obj, name)) is not MISSING:
        return vm.give(kept, cont)
    if type(obj) is types.FunctionType and name in ("__globals__", "__builtins__"):
        return vm.give(function_attributes.namespace_of_function(vm, obj, descr.__get__(obj), name), cont)
    if type(obj) is types.MethodType and name == "__doc__":
        return vm.load_attr(obj.__func__, name, cont)
    if name == "__isabstractmethod__" or name == "__name__" and is_a(obj, property):  # asks the functions inside
        return vm.give(vm.native(descr.__get__, (obj,)), cont)
    try:
        # A descriptor takes None for "no object".
        value = descr.__get__(obj) if obj is not None else object.__getattribute__(None, name)
    except AttributeError as error:
        tracker = heap.by_standin.get(id(obj))
        if tracker is not None and type(descr) is types.MemberDescriptorType and tracker.initial_slots is not None \
                and descr not in tracker.initial_slots:
            heap.guard(tracker.source, Kind.SLOT_EMPTY, (name, descr.__objclass__))
        return raise_to(vm, cont, error)
    except TypeError as error:
        if isinstance(obj, descr.__objclass__):
            raise
        raise Raised(error) from None
    except ValueError as error:
        if type(obj) not in (types.CellType, memoryview):
            raise
        if heap.by_standin.get(id(obj)) is not None:  # an empty cell, a released view
            raise Break("SB005", f"{name} of a {type(obj).__name__} from outside that has none") from None
        raise Raised(error) from None
    if type(value) is Box:
        value = value.force()
    elif name == "__dict__" and type(obj) is types.FunctionType and id(obj) in vm.fresh:
        heap.note_namespace(value, obj, None)
    elif name in ("__self__", "__name__", "__qualname__", "__doc__", "__text_signature__") \
            and is_a(obj, types.BuiltinFunctionType) and not is_a(value, types.ModuleType) \
            and id(obj) not in heap.by_standin and id(obj) not in heap.sources:
        pass  # a method that the trace has bound
    elif is_a(obj, _SELF_STANDING) and id(obj) not in vm.fresh and id(value) not in heap.by_standin:
        value = heap.adopt(value, Attr(heap.source_of(obj), name))
    elif name == "__dict__" and is_a(obj, types.FunctionType) and id(obj) not in heap.dicts.given:
        heap.note_namespace(value, obj, None)
    elif (tracker := heap.by_standin.get(id(obj))) is not None and tracker.shape is ShadowKind.OPAQUE:
        if type(obj) is torch.Generator and name == "device":
            heap.guard_call(descr.__get__, value, tracker.source)
            return vm.give(value, cont)
        if name == "__class__" and value is type(obj):
            return vm.give(value, cont)
        if type(obj) not in TRUSTED_TYPES and not is_a(obj, BaseException):
            raise Break("SB005", f"{name} of a {type(obj).__name__}, which no guard can read")
        value = heap.adopt(value, Attr(tracker.source, name) if type(obj) in TRUSTED_TYPES
                           else CallOf(Pinned(descr.__get__), (tracker.source,)))
    vm.give(value, cont)


def _read_context(heap: Heap, descr: Any, standin: object) -> Any:
    """A compiled backward reads its `ctx`: each read of what it has saved gives another tuple, of the same tensors."""
    tracker = heap.by_standin[id(standin)]
    place = CallOf(Pinned(descr.__get__), (tracker.source,))
    for known in heap.trackers:
        if known.source == place:
            return known.standin
    try:
        with _disable_current_modes():  # a result of the function is a new tensor each time, made by an operation
            value = descr.__get__(tracker.original)
    except RuntimeError as error:  # freed, or changed in place since
        heap.guard_call(_is_refused, True, Pinned(descr), tracker.source)
        raise Raised(error) from None
    return heap.adopt(value, place)


def _is_refused(descr: Any, context: Any) -> bool:
    """Whether autograd refuses to read from a context. Look for freed tensors before any unpack hook runs."""
    try:
        context._raw_saved_tensors  # noqa: B018
        descr.__get__(context)
    except RuntimeError:
        return True
    return False


def generator_attribute(body: object, name: str) -> Any:
    """gi_code and its like, as the interpreted body has them."""
    kind = name.partition("_")[2].replace("await", "yieldfrom")
    if kind not in _GENERATOR_FIELDS:
        raise Break("SB008", f"{name} of a generator")
    return _GENERATOR_FIELDS[kind](body)


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
    if id(cls) in vm.fresh or not is_mutable_class(cls) or hasattr(type, "__annotate__"):
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
    elif name in ("__module__", "__doc__", "__annotations__", "__abstractmethods__"):
        own = dict_of_class(cls)
        name = "__annotations_cache__" if name == "__annotations__" and "__annotations_cache__" in own else name  # 3.14
        if name == "__annotations__" and name not in own:
            raise Break("SB006", f"the annotations of the class {cls.__name__}, which reading makes", once=True)
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
