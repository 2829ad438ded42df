"""Objects in results, made anew.   arrays, small C objects, exceptions, classes, tokens  ->  an expression

Parts of exceptions are set through the C descriptors of their bases; classes are allocated and then filled.  No
`__init__`, `__new__`, `__setattr__` or metaclass of the program runs again.
"""

from __future__ import annotations

import _abc
import _json
import abc
import array
import collections
import contextvars
import datetime
import decimal
import io
import re
import traceback
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
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.intrinsics import intrinsic
from stator.emit.rebuild.decimal_contexts import rebuild_decimal_context
from stator.emit.services import Rebuilder
from stator.heap.pure_readers import bytes_of, mapping_behind, referent_of
from stator.heap.raw_access import instance_dict
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import BUILTIN_METHOD, is_a, module_of, mro_of
from stator.interp.objects.descriptors import TensorSuper, namespace_of_module
from stator.interp.objects.weak_access import PROXIES, proxied
from stator.native.table import receiver_split
from stator.shapes.symbolic_values import SYMBOLIC


def fix_storages(build: Rebuilder) -> None:
    """Make the arrays that the program has made and dropped: the storages below them cannot be resized any more."""
    fixed, memory_of = dict(build.recorder.log.fixed), build.recorder.propagation.memory_behind
    for backed, fake in build.heap.arrays.backed.values():
        if id(backed) in build.memo:
            fixed.pop(memory_of(fake), None)
    if not fixed:
        return
    standins = [tracker.standin for tracker in build.heap.trackers if type(tracker.standin) is FakeTensor]
    for fake in (*standins, *build.outputs):
        if type(fake) is FakeTensor and id(fake) not in build.recorder.classes \
                and fixed.pop(memory_of(fake), None) is not None:
            build.writer.line(f"{build.method('numpy')}({build.method('detach')}({build.tensor(fake)}))")


def rebuild_array(build: Rebuilder, value: Any) -> str:
    memory = build.heap.arrays
    if value.dtype.hasobject or value.dtype.kind == "V":
        raise Break("SB007", "an array of Python objects")
    if id(value) in memory.drawn:
        return build.outside(memory.drawn[id(value)])
    if id(value) in memory.backed:
        return build.variable(value, "array", build.numpy_of(memory.backed[id(value)][1]))
    if type(value.base) is numpy.ndarray:
        base = memory.root_of(value)
        known = build.heap.by_standin.get(id(base))
        offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        held = memory.views.get(id(value))
        if held is not None and held.version is None and not base.flags.forc:
            return build.variable(value, "array", build.numpy_of(held.fake))
        view = build.writer.constant(view_of, "view_of")
        if not base.flags.forc or known is not None and not known.exposed and id(base) not in memory.backed:
            raise Break("SB007", "a view of an array that is not in one piece")
        return build.variable(value, "array", (
            f"{view}({build.value(base)}, {value.dtype.str!r}, {value.shape!r}, {offset}, {value.strides!r}, "
            f"{value.flags.writeable})"))
    if value.base is not None:
        raise Break("SB007", f"an array on the memory of a {type(value.base).__name__}")
    kept = value.copy(order="K")
    build.kept.append(kept)
    made = build.writer.constant(fresh_array, "fresh_array")
    return build.variable(value, "array", f"{made}({build.writer.constant(kept, 'array')}, {value.flags.writeable})")


def fresh_array(contents: Any, writeable: bool) -> Any:
    made = contents.copy(order="K")
    made.flags.writeable = writeable
    return made


def view_of(base: ndarray, dtype: str, shape: tuple[int, ...], offset: int, strides: tuple[int, ...],
            writeable: bool) -> ndarray:
    memory = base if base.flags.c_contiguous else base.T
    made = numpy.ndarray(shape, numpy.dtype(dtype), memory, offset, strides)
    if not writeable:
        made.flags.writeable = False
    return made


IMMUTABLE: frozenset[type] = frozenset({
    datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone, decimal.Decimal,
    re.Match, uuid.UUID, types.CodeType, types.EllipsisType, weakref.CallableProxyType,
    numpy.ufunc, type(numpy.mean),
    type(collections.namedtuple("_Pair", "left right").left),  # type: ignore[attr-defined]
})


def rebuild_holder(build: Rebuilder, value: object, cls: type) -> str | None:
    maker = _MAKERS.get(cls if not is_a(value, types.ModuleType) else types.ModuleType)
    if maker is not None:
        return maker(build, value)
    if id(value) in build.vm.functions.type_parameters:
        return _type_parameter(build, value)
    if cls in IMMUTABLE or issubclass(cls, (numpy.generic, numpy.dtype)) or module_of(cls) == "typing" \
            and cls is not typing.Generic and not cls.__qualname__.startswith("NamedTuple") \
            and not holds_standins(build, value):  # aliases, type variables
        return build.writer.constant(value)
    return None


def holds_standins(build: Rebuilder, value: object) -> bool:
    """Whether an alias has parts that the residual makes or reads again: stand-ins, classes made inside, tensors."""
    if id(value) in build.vm.fresh or type(value) is FakeTensor or type(value) in SYMBOLIC:
        return True
    if (tracker := build.heap.by_standin.get(id(value))) is not None:
        return tracker.standin is not tracker.original
    if type(value) is types.GenericAlias or type(value) is types.UnionType:
        return any(holds_standins(build, part) for part in (getattr(value, "__origin__", None), *value.__args__))
    if type(value) is tuple:
        return any(holds_standins(build, part) for part in value)
    own = instance_dict(value) if module_of(type(value)) == "typing" else None
    return own is not None and any(holds_standins(build, part) for part in own.values())


def _type_parameter(build: Rebuilder, value: object) -> str:
    """[T: bound] and `type X = ...`: their parts are functions, computed at their first read."""
    _, name, values = build.vm.functions.type_parameters[id(value)]
    parts = ", ".join([build.value(part) for part in values])
    if id(value) in build.memo:  # it refers to itself through a cell, which built it already
        return build.memo[id(value)]
    return build.variable(value, name.lower(), f"{build.writer.constant(intrinsic(name), name.lower())}({parts})")


def _wrapper(build: Rebuilder, value: Any) -> str:
    """A classmethod, a staticmethod or a property, around its functions."""
    parts = (value.fget, value.fset, value.fdel, value.__doc__) if type(value) is property else (value.__func__,)
    given = ", ".join([build.value(part) for part in parts])
    return build.variable(value, type(value).__name__, f"{build.writer.constant(type(value))}({given})")


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
    if receiver is None or is_a(receiver, (types.ModuleType, type)) and id(receiver) not in build.vm.fresh \
            or module_of(type(receiver)) == "pybind11_builtins":
        return build.writer.constant(value)
    descriptor, _ = receiver_split(value)
    if descriptor is value:
        return build.variable(value, value.__name__, f"{build.value(receiver)}.{value.__name__}")
    # Not by its name, which a subclass may define anew: `super().append` is list's own.
    bind = f"{build.writer.constant(descriptor, value.__name__)}.__get__"
    bound_to = "None, " if type(descriptor) is types.ClassMethodDescriptorType else ""
    owner = f", {build.value(type(receiver))}" if type(value) is BUILTIN_METHOD else ""  # CPython reads it unasked
    return build.variable(value, value.__name__, f"{bind}({bound_to}{build.value(receiver)}{owner})")


def _proxy(build: Rebuilder, value: Any) -> str:
    make = build.writer.constant(types.MappingProxyType, "mappingproxy")
    return build.variable(value, "proxy", f"{make}({build.value(mapping_behind(value))})")


def _reference(build: Rebuilder, value: Any) -> str:
    referent, maker = (proxied(value), weakref.proxy) if type(value) in PROXIES else (referent_of(value), weakref.ref)
    if referent is None:
        return build.writer.constant(value)
    parts = [build.value(referent)]
    if maker is weakref.ref and value.__callback__ is not None:
        parts.append(build.value(value.__callback__))
    return build.variable(value, "ref", f"{build.writer.constant(maker, 'ref')}({', '.join(parts)})")


def _array(build: Rebuilder, value: Any) -> str:
    make = build.writer.constant(array.array, "array")
    return build.variable(value, "array", f"{make}({value.typecode!r}, {bytes_of(value)!r})")


def _memoryview(build: Rebuilder, value: memoryview) -> str:
    try:
        owner: Any = value.obj
    except ValueError:
        raise Break("SB007", "a memoryview that was released") from None
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
    if not holds_standins(build, value):
        return build.writer.constant(value)
    make = build.writer.constant(types.GenericAlias, "generic_alias")
    return build.variable(value, "alias", f"{make}({build.value(value.__origin__)}, {build.value(value.__args__)})")


def _union(build: Rebuilder, value: types.UnionType) -> str:
    if not holds_standins(build, value):
        return build.writer.constant(value)
    return build.variable(value, "union", " | ".join(build.value(part) for part in value.__args__))


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
    if any(names_of_class(base).get("__slots__") for base in mro_of(type(value))):
        raise Break("SB007", f"a module of the class {type(value).__name__}, which has slots")
    name = build.variable(value, "module", f"{build.writer.constant(_new_module)}({build.value(type(value))})")
    parts = [f"{build.value(key)}: {build.value(item)}" for key, item in namespace_of_module(value).items()]
    build.writer.line(f"{build.writer.constant(namespace_of_module)}({name}).update({{{', '.join(parts)}}})")
    return name


def _new_module(cls: type[types.ModuleType]) -> types.ModuleType:
    """A module without names, whatever its class does."""
    module = types.ModuleType.__new__(cls)
    types.ModuleType.__init__(module, "")
    namespace_of_module(module).clear()
    return module


def _context(build: Rebuilder, value: object) -> str:
    """A context of torch that has not been entered yet: one like any other."""
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
    classmethod: _wrapper, staticmethod: _wrapper, property: _wrapper, types.MethodType: _method,
    super: _super, TensorSuper: _super,
    **dict.fromkeys((types.BuiltinFunctionType, types.MethodWrapperType, BUILTIN_METHOD), _bound),
    types.MappingProxyType: _proxy,
    weakref.ref: _reference, **dict.fromkeys(PROXIES, _reference), array.array: _array, memoryview: _memoryview,
    torch._C.DisableTorchFunctionSubclass: _context, torch._C.DisableTorchFunction: _context,
    numpy.ndarray: rebuild_array, RLock: _lock, type(make_lock()): _lock,
    io.StringIO: _stream, io.BytesIO: _stream, types.GenericAlias: _alias, types.UnionType: _union,
    types.ModuleType: _module,
    _json.make_encoder: _json_encoder, decimal.Context: rebuild_decimal_context,
    bytearray: lambda build, value: build.variable(value, "buffer", f"bytearray({bytes(value)!r})"),
}


_HEAP_TYPE = 1 << 9


def rebuild_exception(build: Rebuilder, value: BaseException) -> str:
    cls = type(value)
    new = next(base.__new__ for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)  # of the builtin base
    make, kind = build.writer.constant(new, "new_exception"), build.value(cls)
    if is_a(value, BaseExceptionGroup):
        message, parts = (BaseExceptionGroup.__dict__[name].__get__(value) for name in ("message", "exceptions"))
        inner = [build.value(part) for part in parts]
        if id(value) in build.memo:
            return build.memo[id(value)]
        items = "".join(f"{part}, " for part in inner)
        given = f"({items})" if type(value.args[1]) is tuple else f"[{items}]"  # shown by repr()
        name = build.variable(value, "exc", f"{make}({kind}, {build.value(message)}, {given})")
    else:
        name = build.variable(value, "exc", f"{make}({kind})")
        _put(build, name, BaseException, "args", value.args)
        _put_members(build, name, value, cls)
    for link in ("__cause__", "__context__"):
        other = BaseException.__dict__[link].__get__(value)
        if other is not None:
            _put(build, name, BaseException, link, other)
    _put(build, name, BaseException, "__suppress_context__", value.__suppress_context__)
    if value.__traceback__ is not None:
        frames = [frame for frame, _ in traceback.walk_tb(value.__traceback__)]
        held = {number: build.vm.frame_objects.held.get(id(frame)) for number, frame in enumerate(frames)}
        build.raised[name] = {number: values for number, values in held.items() if values}
        known = build.heap.tracker_of(value.__traceback__)
        trace = build.outside(known.source) if known else build.writer.constant(value.__traceback__, "traceback")
        build.writer.line(f"{build.writer.constant(put_part)}({name}, "
                          f"{build.writer.constant(BaseException)}, '__traceback__', {trace})")
    build.attributes(value, name)
    return name


def _put_members(build: Rebuilder, name: str, value: BaseException, cls: type) -> None:
    """Set the members of OSError, UnicodeError, StopIteration, ... beside their arguments."""
    for base in cls.__mro__:
        if base.__flags__ & _HEAP_TYPE or base in (BaseException, object):
            continue
        for key, member in base.__dict__.items():
            if type(member) is types.MemberDescriptorType and (item := member.__get__(value)) is not None:
                _put(build, name, base, key, item)


def _put(build: Rebuilder, name: str, owner: type, key: str, item: object) -> None:
    put = build.writer.constant(put_part)
    build.writer.line(f"{put}({name}, {build.writer.constant(owner)}, {key!r}, {build.value(item)})")


def put_part(exc: BaseException, owner: type, name: str, value: object) -> None:
    owner.__dict__[name].__set__(exc, value)


# Made by type.__new__ itself, from the rest.
_AUTOMATIC = frozenset({"__dict__", "__weakref__", "__module__", "__qualname__", "__slots__", "_abc_impl"})
# Names that type.__setattr__ would take for facts of the class itself, not for attributes of its instances.
_TAKEN_BY_TYPE = frozenset({"__class__", *(
    name for name, entry in type.__dict__.items()
    if type(entry) in (types.GetSetDescriptorType, types.MemberDescriptorType))}) - _AUTOMATIC - {
        "__doc__", "__annotations__", "__abstractmethods__", "__type_params__"}
# Python code of the standard library that only checks or records what the finished dict already holds.
_HARMLESS_HOOKS = frozenset({"typing", "typing_extensions", "enum", "abc", "_collections_abc"})


def rebuild_class(build: Rebuilder, value: Any) -> str:
    """The variable that holds a class equal to `value`."""
    meta, writer = type(value), build.writer
    _check_bases(value)
    bases = [build.value(base) for base in value.__bases__]
    namespace = value.__dict__
    first = [f"'__module__': {build.value(namespace.get('__module__'))}", f"'__qualname__': {value.__qualname__!r}"]
    if "__slots__" in namespace:
        first.append(f"'__slots__': {build.value(namespace['__slots__'])}")
    taken = sorted((_TAKEN_BY_TYPE | {"__orig_bases__"}) & namespace.keys())  # the last is for Generic's own hook
    taken += [key for key in ("__dict__", "__weakref__")  # the program's own, where type.__new__ has not made them
              if key in namespace and type(namespace[key]) is not types.GetSetDescriptorType]
    first += [f"{key!r}: {build.value(namespace[key])}" for key in taken]
    make = writer.constant(new_class, "new_class")
    name = build.variable(value, value.__name__, f"{make}({build.value(meta)}, {value.__name__!r}, "
                                                 f"({', '.join(bases)},), {{{', '.join(first)}}})")
    store = writer.constant(type.__setattr__, "set_class_attribute")
    for key, entry in list(namespace.items()):
        if key in _AUTOMATIC or key in taken or (key == "__doc__" and entry is None) or (
                type(entry) is types.MemberDescriptorType and entry.__objclass__ is value):
            continue
        writer.line(f"{store}({name}, {key!r}, {build.value(entry)})")
    return name


def _check_bases(value: type) -> None:
    """type.__new__ calls `__init_subclass__` of the bases again: it must be code that does nothing new."""
    for base in value.__mro__[1:]:
        hook = base.__dict__.get("__init_subclass__")
        if hook is not None and base is not object and module_of(base) not in _HARMLESS_HOOKS:
            raise Break("SB007", f"the class {value.__name__}, made inside the trace under {base.__name__}, which has "
                                 "an __init_subclass__")


def new_class(meta: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
    """An empty class of this metaclass, whose `__new__` and `__init__` are not run again."""
    cls: Any = type.__new__(meta, name, bases, namespace)
    if issubclass(meta, abc.ABCMeta):
        _abc._abc_init(cls)
    if issubclass(meta, torch._C._TensorMeta):
        torch._C._TensorMeta.__init__(cls, name, bases, namespace)
    return cls


def write_context_sets(build: Rebuilder) -> None:
    """Every set() that was not reset, in order: the tokens that they give are those of the program."""
    for each in build.vm.contexts.sets:
        if id(each.token) not in build.memo:
            value = build.value(each.value)
            if id(each.token) not in build.memo:  # the value may hold a token
                build.variable(each.token, "token", f"{build.outside(each.source)}.set({value})")


def rebuild_token(build: Rebuilder, value: object, cls: type) -> str | None:
    """The name of a token that the program got from set(); None for other values."""
    if cls is not contextvars.Token:
        return None
    write_context_sets(build)
    if id(value) not in build.memo:
        raise Break("SB005", "a token of a context variable that was used inside the captured code")
    return build.memo[id(value)]
