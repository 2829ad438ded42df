"""Adopt small C objects that hold others.   xs.append, MappingProxyType(d), weakref.ref(o), bytearray(b"ab")

Each gets a stand-in of the same type around the stand-in of what it holds, so that using it reaches the shadow and
never the user's object.
"""

from __future__ import annotations

import array
import dataclasses
import datetime
import decimal
import functools
import types
import weakref
from typing import Any

from stator import _hook
from stator.breaks import Break
from stator.guards.guard import Kind, is_constant
from stator.heap.adopt.decimal_state import adopt_decimal_context, same_thread_context
from stator.heap.adopt.instances import fill_attributes
from stator.heap.iterators.peekable_iterators import posed_class
from stator.heap.pure_readers import DICT_VIEWS, bytes_of, has_dict, mapping_behind, referent_of
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker, recorded
from stator.host.value_kinds import BUILTIN_METHOD, is_a, mro_of
from stator.shapes.symbolic_values import specialise, varying
from stator.source import Attr, CallOf, Pinned, Slot, Source


def holder_adopters(heap: Heap) -> dict[type, Any]:
    found = {
        types.BuiltinFunctionType: adopt_builtin, BUILTIN_METHOD: adopt_builtin, types.MethodWrapperType: adopt_builtin,
        types.MappingProxyType: adopt_mapping_view, weakref.ref: adopt_reference, weakref.KeyedRef: adopt_reference,
        functools.partial: adopt_partial, bytearray: adopt_buffer, array.array: adopt_buffer, memoryview: adopt_view,
        decimal.Context: adopt_decimal_context,
        **dict.fromkeys(DICT_VIEWS, adopt_mapping_view), **dict.fromkeys(VALUES, adopt_value),
    }
    return {**dict.fromkeys(SENTINELS, heap._adopt_identity),
            **{cls: functools.partial(adopter, heap) for cls, adopter in found.items()}}


# Objects of the standard library that only their identity distinguishes, which native code compares by `is`.
SENTINELS = frozenset({
    type(dataclasses.MISSING), type(dataclasses.KW_ONLY), type(dataclasses._HAS_DEFAULT_FACTORY),  # type: ignore[attr-defined]
    dataclasses._FIELD_BASE,  # type: ignore[attr-defined]
})


def adopt_builtin(heap: Heap, value: Any, source: Source) -> Any:
    """A C function is itself; one bound to an object is bound again, to the stand-in of that object."""
    receiver = value.__self__
    if receiver is None or is_a(receiver, (types.ModuleType, type)):
        return heap._adopt_identity(value, source)
    return _adopt_bound(heap, value, source)


@recorded
def _adopt_bound(heap: Heap, value: Any, source: Source) -> Any:
    descriptor, receiver = _descriptor(value), value.__self__
    if descriptor is None:
        heap.guard(source, Kind.ID, value)
        return heap.register(VariableTracker(value, value, source, ShadowKind.OPAQUE)).standin
    heap.guard(source, Kind.TYPE, type(value))
    heap.guard(CallOf(Pinned(_descriptor), (source,)), Kind.ID, descriptor)
    own = heap.adopt(receiver, Attr(source, "__self__"))
    if heap.is_opaque(own):  # C code looks at it without asking: a pattern's own text
        heap.guard(Attr(source, "__self__"), Kind.ID, receiver)
    own = specialise(own, f"the method {value.__name__}")
    if posed_class(heap, own) is not None:  # a list's iterator, which other classes' methods do not take
        if value.__name__ != "__next__":
            raise Break("SB014", f"the method {value.__name__!r} of a {type(receiver).__name__} from outside")
        descriptor = type(own).__dict__["__next__"]
    standin = descriptor.__get__(own, type(own))
    return heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE)).standin


def _descriptor(value: Any) -> Any:
    """The descriptor that a bound C function was bound from, perhaps by `super()`, past what a subclass defines."""
    cls = type(value.__self__)
    for base in mro_of(cls):
        found = base.__dict__.get(value.__name__)
        if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType) \
                and found.__get__(value.__self__, cls) == value:
            return found
    return None


@recorded
def adopt_partial(heap: Heap, value: Any, source: Source) -> Any:
    """A partial of the stand-ins of its parts."""
    heap.guard(source, Kind.TYPE, functools.partial)
    parts = []
    for name in ("args", "keywords"):
        parts.append(heap.adopt(getattr(value, name), Attr(source, name)))
        heap.expose(parts[-1])
    standin: Any = functools.partial(_no_callback)
    standin.__setstate__((heap.adopt(value.func, Attr(source, "func")), *parts, None))
    tracker = heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE))
    heap.guard_call(has_dict, has_dict(value), source)
    if has_dict(value):
        fill_attributes(heap, tracker)
    return standin


@recorded
def adopt_mapping_view(heap: Heap, value: Any, source: Source) -> Any:
    """A mapping proxy, or keys, values or items of a dict, show the shadow of the mapping."""
    heap.guard(source, Kind.TYPE, type(value))
    shown = heap.adopt(mapping_behind(value), CallOf(Pinned(mapping_behind), (source,)))
    is_proxy = type(value) is types.MappingProxyType
    if heap.is_opaque(shown) or not is_proxy and not is_a(shown, dict):
        raise Break("SB005", f"a {type(value).__name__} of a {type(shown).__name__}")
    if not is_proxy and (known := heap.by_standin.get(id(shown))) is not None:
        heap.expose_keys(known)
    standin = (types.MappingProxyType if is_proxy else DICT_VIEWS[type(value)])(shown)
    return heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE)).standin


@recorded
def adopt_reference(heap: Heap, value: Any, source: Source) -> Any:
    """A weak reference to the stand-in; that the referent lives (or has died) is a fact."""
    heap.guard(source, Kind.TYPE, type(value))
    referent = heap.adopt(referent_of(value), CallOf(Pinned(referent_of), (source,)))
    if referent is None:
        standin: Any = value  # dead for good: nothing can be reached through it
    elif is_a(value, weakref.KeyedRef):
        key = heap.adopt(value.key, Slot(source, "key", weakref.KeyedRef))
        standin = weakref.KeyedRef(referent, _no_callback, key)
    elif value.__callback__ is not None:  # an object of its own, unlike the one plain reference
        standin = weakref.ref(referent, _no_callback)
    else:
        standin = weakref.ref(referent)
    heap.kept.append(referent)
    if (known := heap.by_standin.get(id(standin))) is not None:  # one object has one plain weak reference
        heap.by_original[id(value)] = known
        return standin
    return heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE)).standin


def _no_callback(*args: object) -> None:
    pass


@recorded
def adopt_buffer(heap: Heap, value: Any, source: Source) -> Any:
    """A bytearray or an array: its bytes are a fact, and are compared at the end."""
    heap.guard(source, Kind.TYPE, type(value))
    contents = bytes_of(value)
    heap.guard_call(bytes_of, contents, source)
    if type(value) is bytearray:
        standin: Any = bytearray(contents)
    else:
        heap.guard_call(typecode_of, value.typecode, source)
        standin = array.array(value.typecode, contents)
    if _hook.is_exported(value):  # a view of it keeps it from changing its size
        heap.held_views[id(standin)] = memoryview(standin)
    tracker = VariableTracker(standin, value, source, ShadowKind.BUFFER, contents)
    heap.faces.add_copy(tracker)
    return heap.register(tracker).standin


@recorded
def adopt_view(heap: Heap, value: memoryview, source: Source) -> Any:
    """A memoryview of the whole of its object shows the stand-in of that object."""
    layout = view_layout(value)
    if layout is None:
        return heap._adopt_opaque(value, source)
    heap.guard(source, Kind.TYPE, memoryview)
    heap.guard_call(view_layout, layout, source)
    standin = memoryview(heap.adopt(value.obj, Attr(source, "obj")))
    if value.readonly:
        standin = standin.toreadonly()
    return heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE)).standin


def view_layout(view: memoryview) -> tuple[Any, ...] | None:
    """A pure reader for guards: how a view lies on the whole of its object; None for any other view."""
    try:
        owner = view.obj
    except ValueError:  # released
        return None
    if type(owner) is not bytearray and type(owner) is not bytes and type(owner) is not array.array:
        return None
    with memoryview(owner) as whole:
        same = (view.format, view.shape, view.strides) == (whole.format, whole.shape, whole.strides)
        return (type(owner).__name__, view.format, view.readonly) if same else None


def typecode_of(value: array.array[Any]) -> str:
    return value.typecode


VALUES: frozenset[type] = frozenset({datetime.date, datetime.time, datetime.datetime, datetime.timedelta,
                                     datetime.timezone, decimal.Decimal})


def parts_of(value: Any) -> Any:
    """A pure reader for guards: what a value was made of; None where that is no constant (a user-defined time zone)."""
    if is_struct_sequence(type(value)):
        items, more = value.__reduce__()[1]
        return parts if is_constant(parts := (*items, *more.items())) else None
    if type(value) not in VALUES:
        return None
    parts = tuple(value.as_tuple()) if type(value) is decimal.Decimal else value.__reduce__()[1]
    parts = tuple(parts_of(part) if type(part) in VALUES else part for part in parts)
    return parts if is_constant(parts) else None


def is_struct_sequence(cls: type) -> bool:
    """Whether a type is a C tuple with names (sys.version_info, os.stat_result), which nothing changes."""
    return cls.__base__ is tuple and type(cls.__dict__.get("n_sequence_fields")) is int \
        and type(cls.__dict__.get("__reduce__")) is types.MethodDescriptorType


@recorded
def adopt_value(heap: Heap, value: object, source: Source) -> Any:
    """A value that never changes is itself; what it was made of is the fact."""
    parts = parts_of(value)
    if parts is None:
        return heap._adopt_opaque(value, source)
    if type(value) is decimal.Decimal:
        same_thread_context(heap)
    heap.guard(source, Kind.TYPE, type(value))
    heap.guard_call(parts_of, parts, source)
    return heap.register(VariableTracker(value, value, source, ShadowKind.VALUE)).standin


@recorded
def adopt_unread(heap: Heap, value: object, source: Source) -> Any:
    """A value that changes too often to be a fact: its class is guarded; an instruction that looks further breaks."""
    heap.guard(source, Kind.TYPE, type(value))
    heap.unread_met = True
    return heap.register(VariableTracker(varying(value), value, source, ShadowKind.OPAQUE)).standin
