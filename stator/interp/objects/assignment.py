"""Attribute assignment and deletion, onto stand-ins.   self.n = 3  ->  the shadow's dict; the user's sees it later"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
import warnings
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.intrinsics import CODE_OF_OTHER_KIND
from stator.graph.state.quiet_logging import Heard
from stator.guards.guard import Kind
from stator.heap.adopt.decimal_state import FOUND_BY_C
from stator.heap.adopt.instances import BOXED_LATER, box_attributes
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box, ShadowKind
from stator.host.suspended_patches import TENSOR_CLASSES, is_special, names_of_class, original
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find, is_mutable_class
from stator.interp.objects import descriptors, function_attributes, native_attributes
from stator.interp.objects.attributes import dict_of_thread, read_instance_dict, read_through_c, tensor_class
from stator.interp.objects.class_views import show_attribute
from stator.interp.objects.descriptors import call_special, is_data_descriptor, no_attribute
from stator.interp.objects.weak_access import PROXIES, behind_proxy
from stator.interp.outside_exceptions import restores_traceback
from stator.interp.services import VM
from stator.interp.tensors import tensor_bookkeeping
from stator.interp.torch_function_protocol import note_slot, only_defaults, own_method
from stator.shapes.symbolic_values import SYMBOLIC, UNREAD, specialise, unread
from stator.source import Attr, DictOf

_KINDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_C_MEMBERS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_NEVER_WITHOUT_DICT = (types.FunctionType, BaseException)
_MADE_WITH_THEIR_DICT = (types.FunctionType, BaseException, types.SimpleNamespace, functools.partial)


class Discard(Continuation):
    """The callee's result is thrown away (`__setattr__`, `__setitem__`, `__delitem__`, ...)."""

    resumes = True

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        pass


class GiveNone(Continuation):
    """The callee's result is replaced by None (`setattr(o, n, v)` as a call)."""

    __slots__ = ("cont",)
    resumes = True

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(None, self.cont)


DISCARD = Discard()


def store_attr(vm: VM, obj: object, name: str, value: object, cont: Continuation | None = DISCARD) -> None:
    """`obj.name = value`; in all these functions, MISSING as the value deletes the attribute."""
    if type(obj) is FakeTensor:
        return store_tensor_attr(vm, obj, name, value, cont)
    if type(obj) in SYMBOLIC:
        obj = specialise(obj, f"the attribute {name}")
    obj = behind_proxy(vm, obj) if type(obj) in PROXIES else obj
    special = "__delattr__" if value is MISSING else "__setattr__"
    method = find(vm, type(obj), special)
    if method is vars(threading.local).get(special) and vm.heap.tracker_of(obj) is not None:
        return write_through_c(vm, obj, name, value, cont)
    if id(method) in FOUND_BY_C and (value is MISSING or name in FOUND_BY_C[id(method)]):
        return vm.call(method, (obj, name) if value is MISSING else (obj, name, value), {}, cont)
    if type(method) is not types.WrapperDescriptorType or method.__name__ != special:
        return call_special(vm, method, obj, (name,) if value is MISSING else (name, value), cont)
    store_generic(vm, obj, name, value, cont)


def write_through_c(vm: VM, local: object, name: str, value: object, cont: Continuation | None) -> None:
    """An attribute of a threading.local goes to this thread's dict."""
    if find(vm, threading.local, name) is not MISSING or is_data_descriptor(vm, find(vm, type(local), name)):
        raise Break("SB006", f"assignment to attribute {name!r} of a threading.local")
    own = dict_of_thread(vm, local)
    if value is MISSING and read_through_c(vm, local, name) is MISSING:
        raise Raised(AttributeError(no_attribute(type(local), name)))
    vm.heap.note_write(own)
    if value is MISSING:
        tracker = vm.heap.by_standin[id(own)]
        _guard_start(vm, tracker.source, tracker.initial, name)
        del own[name]
    else:
        own[name] = value
    vm.give(None, cont)


def store_generic(vm: VM, obj: Any, name: str, value: Any, cont: Any = DISCARD) -> None:
    """object.__setattr__, type.__setattr__ and module attributes."""
    cls = type(obj)
    if cls is FakeTensor:
        return store_tensor_attr(vm, obj, name, value, cont, raw=True)
    if is_a(obj, type):
        return store_on_class(vm, obj, name, value, cont)
    if obj is sys and name in ("stdout", "stderr") and len(vm.effects.noted) > vm.effects.early:
        raise Break("SB015", f"sys.{name} is replaced before all of the text was written")
    descr = find(vm, cls, name)
    if descr is not MISSING and descriptors.sets_attribute(vm, descr):
        return set_descriptor(vm, descr, obj, name, value, cont)
    if is_a(obj, types.ModuleType):
        function_attributes.refuse_asked_module(obj)
        scope = descriptors.names_of(vm, obj)
        if value is MISSING and scope.read(name) is MISSING:
            return descriptors.raise_attribute_error(vm, obj, name, cont)
        scope.write(name, value)
    elif value is MISSING:
        return delete_from_dict(vm, obj, name, descr, cont)
    else:
        dict.__setitem__(writable_dict(vm, obj, name, descr), name, value)
    vm.give(None, cont)


def writable_dict(vm: VM, obj: object, name: str, descr: object) -> dict[str, Any]:
    vm.heap.note_write(obj)
    if type(obj) in BOXED_LATER:
        box_attributes(vm.heap, obj)
    own = instance_dict(obj)
    if own is None:
        if vm.heap.is_opaque(obj):
            raise Break("SB006", f"assignment to attribute {name!r} of a {type(obj).__name__}")
        return vm.native(object.__setattr__, (obj, name, None))  # raises CPython's own error
    tracker = vm.heap.by_standin.get(id(obj))
    if tracker is None and native_attributes.is_outside(vm, obj):  # a function or an enum member
        shadow = vm.heap.adopt(own, DictOf(vm.heap.source_of(obj)))
        if type(shadow) in UNREAD:
            raise unread(shadow, f"an assignment to attribute {name!r}")
        vm.heap.note_write(shadow)
        return shadow
    if tracker is not None and tracker.shape is ShadowKind.OPAQUE:
        raise Break("SB006", f"assignment to attribute {name!r} of a {type(obj).__name__}")
    if id(obj) in vm.heap.dicts.given:
        vm.heap.note_write(own)
    return own


def _assign_code(vm: VM, descr: types.GetSetDescriptorType, obj: object, value: object, cont: object) -> None:
    """Assign the code of a function made inside; CPython warns where a generator takes the place of a function."""
    if CODE_OF_OTHER_KIND and type(obj) is types.FunctionType and type(value) is types.CodeType \
            and (obj.__code__.co_flags ^ value.co_flags) & _KINDS \
            and len(value.co_freevars) == len(obj.__closure__ or ()):
        vm.call_sync(warnings.warn, (CODE_OF_OTHER_KIND, DeprecationWarning))
    with Heard():
        vm.native(descr.__set__, (obj, value))
    vm.give(None, cont)


def set_descriptor(vm: VM, descr: Any, obj: object, name: str, value: object, cont: object) -> None:
    vm.heap.note_write(obj)
    cls, deletes = type(descr), value is MISSING
    args = (obj,) if deletes else (obj, value)
    if cls is property:
        accessor, access = (descr.fdel, property.__delete__) if deletes else (descr.fset, property.__set__)
        if accessor is None:
            descriptors.raise_missing_accessor(vm, None, access, descr, *args)
        return vm.call(accessor, args, {}, cont)
    if deletes and cls in _C_MEMBERS and is_assigned_member(vm, descr, obj, name, value):
        pass
    elif name == "__dict__" and cls in _C_MEMBERS:
        give_dict(vm, descr, obj, value)
    elif deletes and cls is types.MemberDescriptorType:
        delete_slot(vm, descr, obj, name)
    elif not deletes and cls in _C_MEMBERS:
        tracker = vm.heap.by_standin.get(id(obj))
        if name == "__class__" and tracker is not None and tracker.shape is not ShadowKind.OPAQUE:
            vm.native(descr.__set__, args)  # written back by the class of the stand-in
        elif not is_named_so(vm, obj, name, value) and not is_assigned_member(vm, descr, obj, name, value):
            refuse_the_users_own(vm, obj, f"assignment to {name!r}")
            if name == "__code__":
                return _assign_code(vm, descr, obj, value, cont)
            vm.native(descr.__set__, args)
    else:
        special = "__delete__" if deletes else "__set__"
        method = find(vm, cls, special)
        if method is MISSING:
            raise Raised(AttributeError(special))
        return call_special(vm, method, vm.adopt_entry(descr, type(obj)), args, cont)
    vm.give(None, cont)


def give_dict(vm: VM, descr: Any, obj: object, namespace: object) -> None:
    """`obj.__dict__ = namespace`: from now on the attributes of an object of the trace are the items of that dict."""
    if namespace is not MISSING and not is_a(namespace, dict):
        return vm.native(descr.__set__, (obj, namespace))  # raises
    if namespace is MISSING and is_a(obj, _NEVER_WITHOUT_DICT):
        return vm.native(descr.__delete__, (obj,))  # raises
    refuse_another_dict(vm, obj)
    if namespace is MISSING:
        vm.native(descr.__delete__, (obj,))
        vm.heap.dicts.given.pop(id(obj), None)
    else:
        vm.native(descr.__set__, (obj, namespace))
        vm.heap.dicts.given[id(obj)] = obj, namespace


def refuse_another_dict(vm: VM, obj: object) -> None:
    """Others may hold the dict that an object from outside has now; that of an object of the trace is let go."""
    if vm.heap.tracker_of(obj) is not None or native_attributes.is_outside(vm, obj) or is_a(obj, _MADE_WITH_THEIR_DICT):
        raise Break("SB006", f"another __dict__ for a {type(obj).__name__}")
    vm.heap.dicts.owners.pop(id(instance_dict(obj)), None)


def is_named_so(vm: VM, obj: object, name: str, value: object) -> bool:
    """Whether an outside function has that very name already: then the assignment is nothing but a fact."""
    if type(obj) is not types.FunctionType or name not in ("__name__", "__qualname__") or id(obj) in vm.fresh \
            or type(value) is not str or getattr(obj, name) is not value:
        return False
    vm.heap.guard(Attr(vm.heap.source_of(obj), name), Kind.EQUALS, value)
    return True


def is_assigned_member(vm: VM, descr: object, obj: object, name: str, value: object) -> bool:
    """Assign to a member of an outside function or exception, where its members are kept (see function_attributes)."""
    if name == "__traceback__":
        return restores_traceback(vm, obj, value)
    return type(obj) is types.FunctionType and id(obj) not in vm.fresh \
        and function_attributes.assign(vm, descr, obj, name, value)


def refuse_the_users_own(vm: VM, obj: object, what: str) -> None:
    """An object that stands for itself is not written to while tracing."""
    tracker = vm.heap.by_standin.get(id(obj))
    if type(obj) is numpy.ndarray or (tracker is None and native_attributes.is_outside(vm, obj)) \
            or (tracker is not None and tracker.shape is ShadowKind.OPAQUE):
        raise Break("SB006", f"{what} of a {type(obj).__name__}")


def store_on_class(vm: VM, cls: type, name: str, value: object, cont: Continuation | None) -> None:
    if not is_mutable_class(cls):
        raise Raised(TypeError(f"cannot set {name!r} attribute of immutable type {cls.__name__!r}"))
    fresh, deletes, meta_descr = id(cls) in vm.fresh, value is MISSING, find(vm, type(cls), name)
    is_set = meta_descr is not MISSING and descriptors.sets_attribute(vm, meta_descr)
    is_c = is_set and type(meta_descr) is types.GetSetDescriptorType
    if is_c and not fresh:
        what = "deletion of" if deletes else "assignment to"
        raise Break("SB006", f"{what} {name!r} of the class {cls.__name__}")
    if is_set and not (is_c and deletes):
        return set_descriptor(vm, meta_descr, cls, name, value, cont)
    if deletes and not is_set and (find(vm, cls, name) is MISSING or not owns(vm, cls, name)):
        raise Raised(AttributeError(f"type object {name_in_errors(cls)!r} has no attribute {name!r}"))
    if fresh:
        if name == "__del__":
            raise Break("SB019", f"a finalizer of {cls.__name__} is changed", whole_call=True)
        vm.native(type.__delattr__, (cls, name)) if deletes else vm.native(type.__setattr__, (cls, name, value))
    else:
        if not deletes and cls in TENSOR_CLASSES and is_special(name):
            find(vm, cls, name)  # the guard of what operators found before
        overlay = vm.classes.overlays.setdefault(cls, {})
        if overlay.get(name) is MISSING and not deletes:
            vm.classes.reborn.add((cls, name))
        overlay[name] = value
        show_attribute(vm, cls, name)
        vm.classes.lookups.clear()
        note_slot(vm, cls, name)
    vm.give(None, cont)


def store_tensor_attr(vm: VM, fake: FakeTensor, name: str, value: object, cont: Continuation | None,
                      raw: bool = False) -> None:
    """`raw`: as object.__setattr__ does, past a `__setattr__` of the class."""
    deletes = value is MISSING
    if vm.modes.active and not deletes:
        raise Break("SB006", f"assignment to the attribute {name!r} of a tensor while a mode sees every operation")
    if not raw and (own := own_method(vm, fake, "__delattr__" if deletes else "__setattr__")) is not None:
        return call_special(vm, own, fake, (name,) if deletes else (name, value), cont)
    if deletes:
        return delete_tensor_attr(vm, fake, name, cont)
    if find(vm, torch._C.TensorBase, name) is not MISSING and vm.concerned((fake,)) \
            and not only_defaults(vm, [fake]):
        raise Break("SB006", f"assignment to Tensor.{name} of a subclass")
    descr = find(vm, tensor_class(vm, fake), name)
    if descr is original(name) and tensor_bookkeeping.write(vm, fake, name, value):
        return vm.give(None, cont)
    if type(descr) is property and type(descr.fset) is types.FunctionType and descr is not original(name):
        return vm.call(descr.fset, (fake, value), {}, cont)
    slot = type(descr) is types.MemberDescriptorType and descr.__objclass__ is not torch._C.TensorBase
    if descr is not MISSING and descriptors.sets_attribute(vm, descr) and not slot:
        raise Break("SB006", f"assignment to Tensor.{name}")
    if id(fake) in vm.recorder.wrappers.behind:
        raise Break("SB006", f"assignment to the attribute {name!r} of a wrapper subclass")
    vm.heap.note_write(fake)
    vm.tensors.attributes.setdefault(id(fake), {})[name] = value
    vm.give(None, cont)


def delete_tensor_attr(vm: VM, fake: FakeTensor, name: str, cont: Continuation | None) -> None:
    """Delete an attribute that the trace itself has set."""
    own, tracker = vm.tensors.attributes.get(id(fake), {}), vm.heap.by_standin.get(id(fake))
    if name not in own or tracker is not None and name in (tracker.initial_dict or {}):
        raise Break("SB006", f"deletion of the attribute {name!r} of a tensor")
    if tracker is not None:
        vm.heap.guard(DictOf(tracker.source), Kind.ABSENT, name)
    del own[name]
    vm.give(None, cont)


def delete_from_dict(vm: VM, obj: object, name: str, descr: object, cont: Continuation | None) -> None:
    own = instance_dict(obj)
    if own is None or read_instance_dict(vm, obj, name) is MISSING:
        if own is None and not vm.heap.is_opaque(obj):
            return vm.native(object.__delattr__, (obj, name))  # the same
        return native_attributes.raise_to(vm, cont, AttributeError(no_attribute(type(obj), name)))
    target = writable_dict(vm, obj, name, descr)
    tracker = vm.heap.by_standin.get(id(obj))
    if tracker is not None and tracker.initial_dict is not None:
        _guard_start(vm, DictOf(tracker.source), tracker.initial_dict, name)
    elif (known := vm.heap.by_standin.get(id(target))) is not None:
        _guard_start(vm, known.source, known.initial, name)
    dict.__delitem__(target, name)
    vm.give(None, cont)


def _guard_start(vm: VM, source: Any, initial: Any, name: str) -> None:
    """Guard whether a deleted name was there at the start: the residual depends on it."""
    vm.heap.guard(source, Kind.PRESENT if name in initial else Kind.ABSENT, name)


def delete_slot(vm: VM, descr: Any, obj: object, name: str) -> None:
    refuse_the_users_own(vm, obj, f"deletion of {name!r}")
    value = None
    try:
        value = descr.__get__(obj)
    except AttributeError:
        pass
    tracker = vm.heap.by_standin.get(id(obj))
    start = None if tracker is None or tracker.initial_slots is None else tracker.initial_slots.get(descr)
    for each in (value, start):
        if type(each) is Box:
            each.force()
    if start is None and tracker is not None and tracker.initial_slots is not None:  # as in _guard_start
        vm.heap.guard(tracker.source, Kind.SLOT_EMPTY, (descr.__name__, descr.__objclass__))
    vm.native(descr.__delete__, (obj,))


def owns(vm: VM, cls: type, name: str) -> bool:
    """Whether the class itself has the attribute, as the program has left it."""
    overlay = vm.classes.overlays.get(cls, {})
    return overlay[name] is not MISSING if name in overlay else name in names_of_class(cls)
