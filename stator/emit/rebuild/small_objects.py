"""Small C objects in results.   property, staticmethod, weakref.ref, MappingProxyType, bytearray, StringIO, Decimal

In: an object of a C type made inside the trace.  Out: an expression that makes one like it, or None where this file
does not know the type.
"""

from __future__ import annotations

import _json
import array
import collections
import datetime
import decimal
import io
import re
import types
import typing
import uuid
import weakref
from _thread import RLock
from _thread import allocate_lock as make_lock
from collections.abc import Callable
from typing import Any

import numpy
import torch

from stator.breaks import Break
from stator.code.intrinsics import intrinsic
from stator.emit.rebuild.returned_arrays import rebuild_array
from stator.emit.services import Rebuilder
from stator.heap.pure_readers import bytes_of, mapping_behind, referent_of
from stator.host.value_kinds import is_a, module_of
from stator.interp.objects.class_attributes import TensorSuper
from stator.native.table import receiver_split

IMMUTABLE: frozenset[type] = frozenset({
    datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone, decimal.Decimal,
    decimal.Context, re.Match, uuid.UUID, types.CodeType, types.EllipsisType, weakref.CallableProxyType,
    numpy.ufunc, type(numpy.mean),
    type(collections.namedtuple("_Pair", "left right").left),  # type: ignore[attr-defined]
})


def rebuild_holder(build: Rebuilder, value: object, cls: type) -> str | None:
    maker = _MAKERS.get(cls)
    if maker is not None:
        return maker(build, value)
    if id(value) in build.vm.functions.type_parameters:
        return _type_parameter(build, value)
    if cls in IMMUTABLE or issubclass(cls, (numpy.generic, numpy.dtype)) or _is_typing_value(cls):
        return build.writer.constant(value)
    return None


def _is_typing_value(cls: type) -> bool:
    """Aliases and type variables: what typing makes is never changed afterwards."""
    return module_of(cls) == "typing" and cls is not typing.Generic and not cls.__qualname__.startswith("NamedTuple")


def _type_parameter(build: Rebuilder, value: object) -> str:
    """[T: bound] and `type X = ...`: their parts are functions, computed when somebody asks."""
    _, name, values = build.vm.functions.type_parameters[id(value)]
    parts = ", ".join([build.value(part) for part in values])
    if id(value) in build.memo:  # it refers to itself through a cell, which built it already
        return build.memo[id(value)]
    return build.variable(value, name.lower(), f"{build.writer.constant(intrinsic(name), name.lower())}({parts})")


def _wrapper(build: Rebuilder, value: Any) -> str:
    """classmethod and staticmethod around one function."""
    inner = build.value(value.__func__)
    return build.variable(value, type(value).__name__, f"{build.writer.constant(type(value))}({inner})")


def _property(build: Rebuilder, value: property) -> str:
    parts = [build.value(part) for part in (value.fget, value.fset, value.fdel, value.__doc__)]
    return build.variable(value, "property", f"{build.writer.constant(property)}({', '.join(parts)})")


def _method(build: Rebuilder, value: types.MethodType) -> str:
    if not callable(value.__func__):  # classmethod(1).__get__(None, int)
        raise Break("SB007", "a method of something that cannot be called")
    make = build.writer.constant(types.MethodType, "method")
    return build.variable(value, "method", f"{make}({build.value(value.__func__)}, {build.value(value.__self__)})")


def _super(build: Rebuilder, value: object) -> str:
    """Rebuild super() where a break comes before its attribute.  A real one looks names up in the class."""
    own = vars(super) if type(value) is super else None
    cls, receiver = (getattr(value, name) if own is None else own[name].__get__(value)
                     for name in ("__thisclass__", "__self__"))
    parts = [build.value(cls), *([] if receiver is None else [build.value(receiver)])]
    return str(build.variable(value, "super_object", f"{build.writer.constant(super)}({', '.join(parts)})"))


def _bound(build: Rebuilder, value: Any) -> str:
    """A C function, perhaps bound to an object of the trace (`xs.append`)."""
    receiver = value.__self__
    if receiver is None or is_a(receiver, (types.ModuleType, type)):
        return build.writer.constant(value)
    descriptor, _ = receiver_split(value)
    if descriptor is value:
        return build.variable(value, value.__name__, f"{build.value(receiver)}.{value.__name__}")
    # Not by its name, which a subclass may define anew: `super().append` is list's own.
    bind = f"{build.writer.constant(descriptor, value.__name__)}.__get__"
    return build.variable(value, value.__name__, f"{bind}({build.value(receiver)})")


def _proxy(build: Rebuilder, value: Any) -> str:
    make = build.writer.constant(types.MappingProxyType, "mappingproxy")
    return build.variable(value, "proxy", f"{make}({build.value(mapping_behind(value))})")


def _reference(build: Rebuilder, value: Any) -> str:
    referent = referent_of(value)
    if referent is None:
        return build.writer.constant(value)
    parts = [build.value(referent)]
    if value.__callback__ is not None:
        parts.append(build.value(value.__callback__))
    return build.variable(value, "ref", f"{build.writer.constant(weakref.ref, 'ref')}({', '.join(parts)})")


def _bytearray(build: Rebuilder, value: bytearray) -> str:
    return build.variable(value, "buffer", f"bytearray({bytes(value)!r})")


def _array(build: Rebuilder, value: Any) -> str:
    make = build.writer.constant(array.array, "array")
    return build.variable(value, "array", f"{make}({value.typecode!r}, {bytes_of(value)!r})")


def _memoryview(build: Rebuilder, value: memoryview) -> str:
    owner: Any = value.obj
    whole = owner is not None and value.format == "B" and value.ndim == 1 and value.contiguous \
        and type(owner) in (bytes, bytearray) and value.nbytes == len(owner)
    if not whole:
        raise Break("SB007", "a memoryview of a part of its object")
    text = f"memoryview({build.value(owner)})"
    if value.readonly and type(owner) is bytearray:
        text += ".toreadonly()"
    return build.variable(value, "view", text)


def _stream(build: Rebuilder, value: Any) -> str:
    if value.closed:
        raise Break("SB007", f"a closed {type(value).__name__}")
    state = value.__getstate__()
    build.kept.append(state)
    name = build.variable(value, "stream", f"{build.writer.constant(type(value))}()")
    build.writer.line(f"{name}.__setstate__({build.value(state)})")
    return name


def _alias(build: Rebuilder, value: Any) -> str:
    if not any(id(part) in build.vm.fresh for part in (value.__origin__, *value.__args__)):
        return build.writer.constant(value)
    make = build.writer.constant(types.GenericAlias, "generic_alias")
    return build.variable(value, "alias", f"{make}({build.value(value.__origin__)}, {build.value(value.__args__)})")


def _lock(build: Rebuilder, value: object) -> str:
    """A lock made inside the trace, as free or as taken as it is."""
    make = build.writer.constant(RLock if type(value) is RLock else make_lock)
    name = build.variable(value, "lock", f"{make}()")
    if getattr(value, "_is_owned" if type(value) is RLock else "locked")():
        build.writer.line(f"{name}.acquire()")
    return name


def _module(build: Rebuilder, value: types.ModuleType) -> str:
    if id(value) not in build.vm.fresh:
        return build.writer.constant(value)
    name = build.variable(value, "module", f"{build.writer.constant(types.ModuleType, 'ModuleType')}('')")
    parts = [f"{build.value(key)}: {build.value(item)}" for key, item in value.__dict__.items()]
    build.writer.line(f"{name}.__dict__.clear()")
    build.writer.line(f"{name}.__dict__.update({{{', '.join(parts)}}})")
    return name


def _context(build: Rebuilder, value: object) -> str:
    """A context of torch's that has not been entered yet: one like any other."""
    if any(value is entered for entered, _ in build.vm.modes.functions_off_before):
        raise Break("SB007", f"a {type(value).__name__} that is on")
    return build.variable(value, "context", f"{build.writer.constant(type(value))}()")


def _json_encoder(build: Rebuilder, value: Any) -> str:
    parts = [build.value(getattr(value, name)) for name in _ENCODER_FIELDS]
    try:
        value(float("nan"), 0)  # no attribute shows whether it takes one
        parts.append("True")
    except ValueError:
        parts.append("False")
    return build.variable(value, "encoder", f"{build.writer.constant(type(value), 'make_encoder')}({', '.join(parts)})")


_ENCODER_FIELDS = ("markers", "default", "encoder", "indent", "key_separator", "item_separator", "sort_keys",
                   "skipkeys")
_MAKERS: dict[type, Callable[[Any, Any], str]] = {
    classmethod: _wrapper, staticmethod: _wrapper, property: _property, types.MethodType: _method,
    super: _super, TensorSuper: _super,
    types.BuiltinFunctionType: _bound, types.MethodWrapperType: _bound, types.MappingProxyType: _proxy,
    weakref.ref: _reference, bytearray: _bytearray, array.array: _array, memoryview: _memoryview,
    torch._C.DisableTorchFunctionSubclass: _context, torch._C.DisableTorchFunction: _context,
    numpy.ndarray: rebuild_array, RLock: _lock, type(make_lock()): _lock,
    io.StringIO: _stream, io.BytesIO: _stream, types.GenericAlias: _alias, types.ModuleType: _module,
    _json.make_encoder: _json_encoder,
}
