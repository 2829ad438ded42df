"""Adopt small C objects that hold others.   xs.append, MappingProxyType(d), weakref.ref(o), bytearray(b"ab")

Each gets a stand-in of the same type around the stand-in of what it holds, so that using it reaches the shadow and
never the user's object.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import types
import weakref
from typing import Any

from stator import _hook
from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.adopt.instances import fill_attributes
from stator.heap.iterators.peekable_iterators import posed_class
from stator.heap.pure_readers import DICT_VIEWS, bytes_of, mapping_behind, referent_of
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.host.value_kinds import is_a
from stator.shapes.symbolic_values import specialise
from stator.source import Attr, CallOf, Pinned, Slot, Source


def holder_adopters(heap: Heap) -> dict[type, Any]:
    """Adopters by type, each called as adopter(value, source)."""
    found = {
        types.BuiltinFunctionType: adopt_builtin, types.MethodWrapperType: adopt_builtin,
        types.MappingProxyType: adopt_proxy, weakref.ref: adopt_reference, weakref.KeyedRef: adopt_reference,
        functools.partial: adopt_partial, bytearray: adopt_buffer, array.array: adopt_buffer, memoryview: adopt_view,
    }
    found.update(dict.fromkeys(SENTINELS, adopt_sentinel))
    found.update(dict.fromkeys(DICT_VIEWS, adopt_dict_view))
    return {cls: functools.partial(adopter, heap) for cls, adopter in found.items()}


# Objects of the standard library that only their identity tells apart, which native code compares by `is`.
SENTINELS = frozenset({
    type(dataclasses.MISSING), type(dataclasses.KW_ONLY), type(dataclasses._HAS_DEFAULT_FACTORY),  # type: ignore[attr-defined]
    dataclasses._FIELD_BASE,  # type: ignore[attr-defined]
})


def adopt_sentinel(heap: Heap, value: object, source: Source) -> object:
    heap.guard(source, Kind.ID, value)
    return value


def adopt_builtin(heap: Heap, value: Any, source: Source) -> Any:
    """A C function is itself; one bound to an object is bound again, to the stand-in of that object."""
    receiver = value.__self__
    if receiver is None or is_a(receiver, (types.ModuleType, type)):
        heap.guard(source, Kind.ID, value)
        return value
    tracker = heap.known(value, source)
    if tracker is not None:
        return tracker.standin
    descriptor = _descriptor(value)
    if descriptor is None:
        heap.guard(source, Kind.ID, value)
        heap.register(VariableTracker(value, value, source, ShadowKind.OPAQUE))
        return value
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
    """What a bound C function was bound from, perhaps by `super()`, past what a subclass defines."""
    cls = type(value.__self__)
    for base in type.__dict__["__mro__"].__get__(cls):
        found = base.__dict__.get(value.__name__)
        if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType) \
                and found.__get__(value.__self__, cls) == value:
            return found
    return None


def adopt_partial(heap: Heap, value: Any, source: Source) -> Any:
    """A partial of the stand-ins of its parts."""
    tracker = heap.known(value, source)
    if tracker is None:
        heap.guard(source, Kind.TYPE, functools.partial)
        args = heap.adopt(value.args, Attr(source, "args"))
        heap.expose(args)
        keywords = heap.adopt(value.keywords, Attr(source, "keywords"))
        heap.expose(keywords)
        standin: Any = functools.partial(_no_callback)
        standin.__setstate__((heap.adopt(value.func, Attr(source, "func")), args, keywords, None))
        tracker = heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE))
        fill_attributes(heap, tracker)
    return tracker.standin


def adopt_proxy(heap: Heap, value: Any, source: Source) -> Any:
    """A mapping proxy shows the shadow of its mapping."""
    tracker = heap.known(value, source)
    if tracker is None:
        heap.guard(source, Kind.TYPE, types.MappingProxyType)
        shown = heap.adopt(mapping_behind(value), CallOf(Pinned(mapping_behind), (source,)))
        if heap.is_opaque(shown):
            raise Break("SB005", f"a mappingproxy of a {type(shown).__name__}")
        tracker = heap.register(VariableTracker(types.MappingProxyType(shown), value, source, ShadowKind.VALUE))
    return tracker.standin


def adopt_dict_view(heap: Heap, value: Any, source: Source) -> Any:
    """Keys, values or items of a dict show those of its shadow: what is in them is read as from the dict."""
    tracker = heap.known(value, source)
    if tracker is None:
        heap.guard(source, Kind.TYPE, type(value))
        shown = heap.adopt(mapping_behind(value), CallOf(Pinned(mapping_behind), (source,)))
        if heap.is_opaque(shown) or not is_a(shown, dict):
            raise Break("SB005", f"a {type(value).__name__} of a {type(shown).__name__}")
        if (known := heap.by_standin.get(id(shown))) is not None:
            heap.expose_keys(known)
        tracker = heap.register(VariableTracker(DICT_VIEWS[type(value)](shown), value, source, ShadowKind.VALUE))
    return tracker.standin


def adopt_reference(heap: Heap, value: Any, source: Source) -> Any:
    """A weak reference to the stand-in; that the referent lives (or has died) is a fact."""
    tracker = heap.known(value, source)
    if tracker is None:
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
        tracker = heap.by_standin.get(id(standin))
        if tracker is not None:  # one object has one plain weak reference
            heap.by_original[id(value)] = tracker
            return standin
        tracker = heap.register(VariableTracker(standin, value, source, ShadowKind.VALUE))
    return tracker.standin


def _no_callback(*args: object) -> None:
    pass


def adopt_buffer(heap: Heap, value: Any, source: Source) -> Any:
    """A bytearray or an array: its bytes are a fact, and are compared at the end."""
    tracker = heap.known(value, source)
    if tracker is None:
        heap.guard(source, Kind.TYPE, type(value))
        contents = bytes_of(value)
        heap.guard(CallOf(Pinned(bytes_of), (source,)), Kind.FRESH_CALL, contents)
        if type(value) is bytearray:
            standin: Any = bytearray(contents)
        else:
            heap.guard(CallOf(Pinned(typecode_of), (source,)), Kind.FRESH_CALL, value.typecode)
            standin = array.array(value.typecode, contents)
        if _hook.is_exported(value):  # a view of it keeps it from changing its size
            heap.held_views[id(standin)] = memoryview(standin)
        tracker = VariableTracker(standin, value, source, ShadowKind.BUFFER)
        tracker.initial = contents
        heap.faces.add_copy(tracker)
        heap.register(tracker)
    return tracker.standin


def adopt_view(heap: Heap, value: memoryview, source: Source) -> Any:
    """A memoryview of the whole of its object shows the stand-in of that object."""
    tracker = heap.known(value, source)
    if tracker is not None:
        return tracker.standin
    layout = view_layout(value)
    if layout is None:
        return heap._adopt_opaque(value, source)
    heap.guard(source, Kind.TYPE, memoryview)
    heap.guard(CallOf(Pinned(view_layout), (source,)), Kind.FRESH_CALL, layout)
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
