"""Rule for dir().   dir(obj)  ->  the names that eager lists, guarded

In: nothing, or any object.  Out: a fresh list.  Names that the trace has set on outside classes, functions and modules
are in overlays, which CPython's dir() does not see: they are put together here, as object.__dir__ and its like do.
"""

from __future__ import annotations

import types
from collections.abc import Iterable

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.raw_access import instance_dict
from stator.heap.records import Scope
from stator.heap.tracker import ShadowKind
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import dict_of_class, is_a, mro_of, name_in_errors
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, ancestors, find, is_mutable_class
from stator.interp.objects.attributes import load_attr
from stator.interp.objects.descriptors import names_of
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.python.object_functions import names_in
from stator.shapes.symbolic_values import UNREAD, unread
from stator.source import DictOf, Pinned

_PLAIN = (object.__dir__, type.__dir__)


@rule(dir)
def _dir(vm: VM, obj: object = MISSING, /) -> object:
    if obj is MISSING:
        return _names_around(vm)
    held = obj.__func__ if type(obj) is types.MethodType else obj
    if type(held) is types.FunctionType and id(held) not in vm.fresh:
        return _names_of_function(vm, obj, held)
    tracker = vm.heap.tracker_of(obj)
    if tracker is not None:
        if tracker.shape in (ShadowKind.OPAQUE, ShadowKind.TENSOR):
            raise Break("SB005", f"dir() of a {type(obj).__name__} from outside")
        vm.heap.expose_attributes(tracker)
    elif is_a(obj, types.ModuleType) and id(obj) not in vm.fresh:
        scope = names_of(vm, obj)  # type: ignore[arg-type]
        assert isinstance(scope, Scope)
        if scope.overlay or scope.shadow is not None:
            if type(obj) is not types.ModuleType or scope.read("__dir__") is not MISSING:
                raise Break("SB005", "dir() of a module that the program has changed")
            return _keys(vm, scope.view())
        vm.heap.guard(Pinned(scope.namespace), Kind.KEYS, tuple(scope.namespace))
    listed = (*(ancestors(vm, obj) if is_a(obj, type) else ()),  # type: ignore[arg-type]
              *(ancestors(vm, type(obj)) if find(vm, type(obj), "__dir__") is object.__dir__ else ()))
    for base in listed:
        if is_mutable_class(base) and id(base) not in vm.fresh:
            vm.heap.guard(DictOf(Pinned(base)), Kind.KEYS, tuple(dict_of_class(base)))
    if any(vm.classes.overlays.get(base) for base in listed):
        if find(vm, type(obj), "__dir__") not in _PLAIN or find(vm, type(obj), "__dict__") is MISSING:
            raise Break("SB005", "dir() of a class that the program has changed")
        return _names_with_overlays(vm, obj)
    return vm.native(dir, (obj,))


def _names_around(vm: VM) -> object:
    """dir() without an object: names of the namespace around, which the program may have made."""
    names = names_in(vm, vm.running)
    if type(names) is dict:
        return _keys(vm, names)
    keys = vm.call_sync(vm.sync(lambda: load_attr(vm, names, "keys")), ())
    if type(keys) is list:  # CPython sorts and hands out this very list
        vm.call_sync(vm.sync(lambda: load_attr(vm, keys, "sort")), ())
        return keys
    if find(vm, type(keys), "__iter__") is MISSING and find(vm, type(keys), "__getitem__") is MISSING:
        raise Raised(TypeError(f"{name_in_errors(type(names))}.keys() returned a non-iterable "
                               f"(type {name_in_errors(type(keys))})"))
    return vm.native(sorted, (vm.collect(keys),))


def _keys(vm: VM, names: dict[str, object]) -> list[str]:
    tracker = vm.heap.tracker_of(names)
    if tracker is not None:
        vm.heap.expose_keys(tracker)
    return sorted(names)


def _names_of_function(vm: VM, obj: object, fn: types.FunctionType) -> object:
    """Names of an outside function, or of a method of one, which shows those of its function."""
    own = vm.heap.adopt(instance_dict(fn), DictOf(vm.heap.source_of(fn)))
    if type(own) in UNREAD:
        raise unread(own, "dir()")
    like = types.FunctionType(fn.__code__, {}, closure=fn.__closure__)
    like.__dict__.update(dict.fromkeys(_keys(vm, own)))  # type: ignore[arg-type]
    return vm.native_unhooked(dir, (like if obj is fn else types.MethodType(like, like),))


def _names_with_overlays(vm: VM, obj: object) -> list[str]:
    found: set[str] = set()
    for base in mro_of(obj if is_a(obj, type) else type(obj)):  # type: ignore[arg-type]
        overlay = vm.classes.overlays.get(base, {})
        found.update(_names_of_base(names_of_class(base), overlay))
    if not is_a(obj, type):
        found.update(instance_dict(obj) or ())
    return sorted(found)


def _names_of_base(own: Iterable[str], overlay: dict[str, object]) -> set[str]:
    return {name for name in (*own, *overlay) if overlay.get(name, None) is not MISSING}
