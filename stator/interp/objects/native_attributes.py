"""Attributes that C code holds.   a slot, `__dict__`, `func.__name__`, `exc.args`  ->  their value, adopted

In: a member descriptor and an object. Out: the value, with a guard or a source where the object is from outside.
"""

from __future__ import annotations

import contextvars
import enum
import functools
import types
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.guard_semantics import TRUSTED_TYPES
from stator.heap.adopt.instances import box_attributes
from stator.heap.heap import Heap
from stator.heap.tracker import Box, ShadowKind
from stator.host.value_kinds import is_a
from stator.interp.arrays.native_numpy import read_array_attribute
from stator.interp.frame import Continuation, Raised
from stator.interp.lookup import MISSING
from stator.interp.objects import function_attributes
from stator.interp.objects.process_facts import note_location
from stator.interp.services import VM
from stator.source import Attr, CallOf, DictOf, Pinned

Member = types.MemberDescriptorType | types.GetSetDescriptorType
_SELF_STANDING = (types.FunctionType, types.BuiltinFunctionType)
_OF_CONTEXTS = frozenset({"saved_tensors", "needs_input_grad"})
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


def raise_to(vm: VM, cont: Continuation | None, error: BaseException) -> None:
    """Raise an exception of the program, unless the continuation handles it."""
    if cont is None or not cont.raised(vm, vm.running, error):
        raise Raised(error) from None


def read_c_member(vm: VM, descr: Member, obj: object, cont: Continuation | None) -> None:
    """A C-level attribute: a slot, `__dict__`, `__class__`, `func.__name__`, `exc.args`, ..."""
    name, heap = descr.__name__, vm.heap
    tracker = heap.by_standin.get(id(obj))
    box = tracker.initial_slots.get(descr) if tracker is not None and tracker.initial_slots else None
    if box is not None and box.forced and id(tracker) not in heap.changes.written:
        return vm.give(box.value, cont)  # a slot that was read before
    if id(obj) in vm.autograd.nodes:
        raise Break("SB016", f"{name} of a grad_fn")
    if name == "__dict__" and not is_a(obj, (types.FunctionType, type, types.ModuleType)):
        return vm.give(_dict_of_instance(vm, descr, obj), cont)
    if type(obj) is types.MethodType and name == "__doc__":
        return vm.load_attr(obj.__func__, name, cont)
    if (known := _known_to_trace(vm, descr, obj, name)) is not MISSING:
        return vm.give(known, cont)
    try:
        # A descriptor takes None for "no object".
        value = descr.__get__(obj) if obj is not None else object.__getattribute__(None, name)
    except AttributeError as error:
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
        if tracker is not None:  # an empty cell, a released view
            raise Break("SB005", f"{name} of a {type(obj).__name__} from outside that has none") from None
        raise Raised(error) from None
    vm.give(value.force() if type(value) is Box else _adopted_member(vm, descr, obj, value), cont)


def _dict_of_instance(vm: VM, descr: Member, obj: object) -> object:
    heap = vm.heap
    tracker = heap.by_standin.get(id(obj))
    if tracker is not None:
        if tracker.shape is ShadowKind.OPAQUE:
            if type(obj) is not functools._lru_cache_wrapper:
                raise Break("SB005", f"__dict__ of a {type(obj).__name__}")
            return heap.adopt(descr.__get__(tracker.original), DictOf(tracker.source))
        box_attributes(heap, obj)
    own = descr.__get__(obj)
    if tracker is None and is_outside(vm, obj):
        return heap.adopt(own, DictOf(heap.source_of(obj)))
    if type(own) is dict and id(obj) not in heap.dicts.given:
        heap.note_namespace(own, obj, tracker)
    return own


def _known_to_trace(vm: VM, descr: Member, obj: Any, name: str) -> object:
    """A member whose value the trace keeps, or that it must not read; MISSING for one that the object itself has."""
    heap, cls = vm.heap, type(obj)
    if cls is numpy.ndarray:
        return read_array_attribute(vm, obj, name, descr)
    if name in _OF_CONTEXTS and is_a(obj, torch._C._FunctionBase) and id(obj) in heap.by_standin:
        return _read_context(heap, descr, obj)
    if cls is contextvars.Token and name == "old_value" and id(obj) in vm.fresh:
        raise Break("SB005", "old_value of a token of a context variable")  # ours was set in a context of its own
    if name == "__traceback__" and id(obj) in heap.by_standin:
        raise Break("SB020", "the traceback of an exception from outside")
    if cls is types.FrameType:
        return _member_of_frame(vm, obj, name)
    if cls is types.CodeType and name in ("co_filename", "co_firstlineno"):
        note_location(vm, obj)
    elif cls is types.TracebackType and name == "tb_lineno":
        note_location(vm, obj.tb_frame.f_code)
    if id(obj) in vm.generators and name not in ("__name__", "__qualname__", "__class__"):
        return generator_attribute(vm.generators[id(obj)], name)
    if cls is types.FunctionType:
        if (kept := function_attributes.read(vm, obj, name)) is not MISSING:
            return kept
        if name in ("__globals__", "__builtins__"):
            return function_attributes.namespace_of_function(vm, obj, descr.__get__(obj), name)
    if name == "__isabstractmethod__" or name == "__name__" and is_a(obj, property):  # reads the functions inside
        return vm.native(descr.__get__, (obj,))
    return MISSING


def _member_of_frame(vm: VM, frame: types.FrameType, name: str) -> object:
    if name == "f_globals":
        return vm.heap.scope(frame.f_globals).view()
    shown = any(frame is body.shown for body in vm.generators.values())
    if name not in ("f_code", "f_lineno", "f_lasti") or name != "f_code" and shown:
        raise Break("SB020", f"{name} of a frame")
    if name == "f_lineno":
        note_location(vm, frame.f_code)
    vm.frame_objects.update(frame)
    return MISSING


def _adopted_member(vm: VM, descr: Member, obj: object, value: object) -> object:
    """The value that a C-level attribute has, adopted where it belongs to an outside object."""
    name, heap = descr.__name__, vm.heap
    if name == "__dict__" and type(value) is dict and type(obj) is types.FunctionType and id(obj) in vm.fresh:
        heap.note_namespace(value, obj, None)
    elif name in ("__self__", "__name__", "__qualname__", "__doc__", "__text_signature__") \
            and is_a(obj, types.BuiltinFunctionType) and not is_a(value, types.ModuleType) \
            and id(obj) not in heap.by_standin and id(obj) not in heap.sources:
        pass  # a method that the trace has bound
    elif is_a(obj, _SELF_STANDING) and id(obj) not in vm.fresh and id(value) not in heap.by_standin:
        return heap.adopt(value, Attr(heap.source_of(obj), name))
    elif name == "__dict__" and type(value) is dict and is_a(obj, types.FunctionType) \
            and id(obj) not in heap.dicts.given:
        heap.note_namespace(value, obj, None)
    elif (tracker := heap.by_standin.get(id(obj))) is not None and tracker.shape is ShadowKind.OPAQUE:
        if type(obj) is torch.Generator and name == "device":
            heap.guard_call(descr.__get__, value, tracker.source)
        elif name != "__class__" or value is not type(obj):
            if type(obj) not in TRUSTED_TYPES and not is_a(obj, BaseException):
                raise Break("SB005", f"{name} of a {type(obj).__name__}, which no guard can read")
            return heap.adopt(value, Attr(tracker.source, name) if type(obj) in TRUSTED_TYPES
                              else CallOf(Pinned(descr.__get__), (tracker.source,)))
    return value


def _read_context(heap: Heap, descr: Member, standin: object) -> object:
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


def _is_refused(descr: Member, context: Any) -> bool:
    """Whether autograd refuses to read from a context. Look for freed tensors before any unpack hook runs."""
    try:
        context._raw_saved_tensors  # noqa: B018
        descr.__get__(context)
    except RuntimeError:
        return True
    return False


def generator_attribute(body: object, name: str) -> object:
    """gi_code and its like, as the interpreted body has them."""
    kind = name.partition("_")[2].replace("await", "yieldfrom")
    if kind not in _GENERATOR_FIELDS:
        raise Break("SB008", f"{name} of a generator")
    return _GENERATOR_FIELDS[kind](body)
