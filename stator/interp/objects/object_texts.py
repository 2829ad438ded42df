"""Names and addresses in text.   repr(K), "'K' object is not callable"  ->  guards on the names of K

A default repr shows an address: such text is made from the user's object, whose identity is guarded.  The address of an
object made inside is exchanged where the object itself leaves the trace (`emit/rebuild/shown_addresses.py`).
"""

from __future__ import annotations

import functools
import operator
import re
import types
from collections.abc import Callable, Iterable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.outside_changes import changed_trackers
from stator.heap.raw_access import CONSTANT_TYPES
from stator.heap.tracker import ShadowKind, referring
from stator.host.value_kinds import (
    BUILTIN_METHOD,
    is_a,
    module_of,
    name_in_errors,
    name_of_class,
    qualified_name_of,
)
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, find, is_mutable_class
from stator.interp.objects.descriptors import guard_member, load_module_attr, names_of
from stator.interp.objects.function_attributes import refuse_renamed
from stator.interp.objects.process_facts import note_order, note_standin
from stator.interp.objects.shown_values import parts_shown
from stator.interp.services import VM
from stator.native.table import NativeClass, lookup
from stator.source import Attr, Pinned

_NAMES = ("__name__", "__qualname__", "__module__")
_SHOWN_BY_REPR = (repr, ascii)
_REFUSED = (NativeClass.IMPURE_READ, NativeClass.DENY, NativeClass.SPECIAL)
_NAMED = (type, types.ModuleType)  # shown by name
_CONVERTED = re.compile(r"%(\([^)]*\))?[-#0-9 +.*]*[ra]|![ra]").search  # "%r" and "{!r}" show the repr
_WHOLE = (repr, str, ascii, format)
_OF_RECEIVERS = frozenset({types.BuiltinFunctionType, BUILTIN_METHOD, types.MethodWrapperType})
_WITH_ADDRESSES = (object.__repr__, *(cls.__repr__ for cls in (*_OF_RECEIVERS, types.FunctionType)))
_TRANSPARENT = frozenset({types.MethodType, functools.partial, types.GenericAlias, types.UnionType})


def guard_names(vm: VM, value: Any) -> None:
    """A class or a function is called by its name."""
    if is_a(value, type):
        if value not in vm.classes.named and is_mutable_class(value) and id(value) not in vm.fresh:
            vm.classes.named.add(value)
            for name in _NAMES:
                guard_member(vm, value, name)
    elif type(value) is types.FunctionType and id(value) not in vm.fresh:
        refuse_renamed(vm, value)
        vm.heap.adopt(value.__qualname__, Attr(vm.heap.source_of(value), "__qualname__"))


def guard_names_in(vm: VM, error: BaseException) -> None:
    """Guard names of classes that occur in the message of an error, which the program may read."""
    text = " ".join([part for part in error.args if type(part) is str])
    if not text:
        return
    for cls in {cls for cls, _ in vm.classes.lookups} | {type(tracker.original) for tracker in vm.heap.trackers}:
        if cls not in vm.classes.named and is_mutable_class(cls) \
                and (name_of_class(cls) in text or qualified_name_of(cls) in text):
            guard_names(vm, cls)


def not_callable(vm: VM, value: object) -> Raised:
    """The error of a call of something that cannot be called."""
    text = f"{name_in_errors(type(value))!r} object is not callable"
    if SUGGESTS_MEMBERS and type(value) is types.ModuleType:
        name = names_of(vm, value).read("__name__")
        if is_a(name, str) and _has_callable(vm, value, name):
            text += f". Did you mean: '{name}.{name}(...)'?"
    return Raised(TypeError(text))


def _has_callable(vm: VM, module: types.ModuleType, name: str) -> bool:
    try:
        found = vm.sync(lambda: load_module_attr(vm, module, name, None))
    except Raised:  # also other errors than AttributeError: the message is made without
        return False
    return find(vm, type(found), "__call__") is not MISSING


def _suggests_members() -> bool:
    """Whether the error of a called module names its member of the same name (CPython 3.12 and later)."""
    module = types.ModuleType("f")
    vars(module)["f"] = len
    try:
        operator.call(module)  # type: ignore[arg-type]
    except TypeError as error:
        return "f.f" in str(error)
    return False


SUGGESTS_MEMBERS = _suggests_members()


def text_of_outside(vm: VM, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The text of an outside object with the default repr, with its own address; MISSING where fn(*args) is no such."""
    if not any(fn is whole for whole in _WHOLE) or not args or len(args) > 1 and (type(args[1]) is not str or args[1]):
        return MISSING
    tracker = vm.heap.by_standin.get(id(args[0]))
    if tracker is not None and tracker.shape is ShadowKind.OPAQUE and changed_trackers(vm.heap) and not (
            is_a(tracker.original, BaseException) and module_of(type(tracker.original)) == "builtins"
            and all(type(each) in CONSTANT_TYPES for each in tracker.original.args)):
        raise Break("SB006", f"the text of a {type(args[0]).__name__}, which may hold objects that were changed")
    if tracker is None or tracker.shape in (ShadowKind.TENSOR, ShadowKind.OPAQUE) \
            or _slot(vm, _asked_first(fn), args[0]) is not object.__repr__:
        return MISSING
    vm.heap.guard(tracker.source, Kind.ID, tracker.original)
    guard_names(vm, type(tracker.original))
    vm.identity.of_process = "a text with the address of an object"
    return object.__repr__(tracker.original)


def note_addresses(vm: VM, fn: Any, values: Iterable[Any]) -> None:
    """Note the addresses that the text shows which fn makes of these values."""
    if module_of(type(fn)) == "_json":  # an encoder calls repr where `default` says so
        fn = getattr(fn, "default", None)
        if not any(fn is whole for whole in _WHOLE):
            return
    seen: set[int] = set()
    ways = [_asked_first(fn)]
    if ways[0] and any(type(value) is str and _CONVERTED(value) for value in values):
        ways.append(())
    values = list(values)
    if len(values) == 2 and is_a(values[0], (str, bytes)) and is_a(values[1], tuple):  # text % (a, b)
        values[1:] = tuple.__iter__(values[1])
    for value in values:
        for names in ways:
            _check(vm, _slot(vm, names, value), value, seen)


def _asked_first(fn: Callable[..., Any]) -> tuple[str, ...]:
    """The methods that are called for a text before `__repr__` is."""
    if any(fn is shown for shown in _SHOWN_BY_REPR):
        return ()
    return ("__format__", "__str__") if getattr(fn, "__name__", "") in ("format", "format_map") else ("__str__",)


def _slot(vm: VM, asked_first: tuple[str, ...], value: object) -> Any:
    """The method that makes the text: `__repr__`, or one of the program that comes first."""
    cls = type(value)
    if cls in CONSTANT_TYPES or cls is FakeTensor:
        return None
    for name in asked_first:
        if type(found := find(vm, cls, name)) is types.FunctionType:
            return found
    return find(vm, cls, "__repr__")


def _check(vm: VM, slot: object, value: Any, seen: set[int]) -> None:
    if slot is None or type(slot) is types.FunctionType or id(value) in seen:
        return
    seen.add(id(value))
    guard_names(vm, value)
    guard_names(vm, type(value))
    if is_a(value, _NAMED):
        return
    if is_a(value, (set, frozenset)) and id(value) not in vm.heap.by_standin:
        note_order(vm, value)
    for part in parts_shown(value):
        _check(vm, _slot(vm, (), part), part, seen)
    row = lookup(slot)
    if type(value) in _TRANSPARENT or row is not None and row.cls not in _REFUSED:
        return
    if type(value) is types.BuiltinFunctionType and (value.__self__ is None or is_a(value.__self__, types.ModuleType)):
        return
    if type(value) in _OF_RECEIVERS:
        value = value.__self__  # whose address they show, whatever its own repr is
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is not None and tracker.standin is tracker.original:
        vm.heap.guard(tracker.source, Kind.ID, tracker.original)
    elif type(value) is types.FunctionType and id(value) not in vm.fresh:
        source = vm.heap.source_of(value)
        if type(source) is not Pinned:
            vm.heap.guard(source, Kind.ID, value)
    elif tracker is not None:
        if not any(slot is each for each in _WITH_ADDRESSES):
            raise Break("SB013", f"the address of a {type(value).__name__} in text")
        note_standin(vm, tracker)
    elif type(vm.heap.sources.get(id(value))) is Pinned:  # itself, and no copy: a sentinel of the standard library
        vm.identity.of_process = "a text with the address of an object"
    else:  # an object of the trace: any address will do, as long as the object itself is not handed out
        vm.identity.shown[id(value)] = referring(value)
