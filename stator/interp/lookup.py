"""Find a name on a class, guarded.   (cls, "forward")  ->  the raw entry of the first class in the MRO

Raw entries are what `cls.__dict__` holds: functions, descriptors, plain values.  The identity of the entry is
guarded, so the entry itself can be pinned.  Classes that the trace itself made need no guard.
"""

from __future__ import annotations

from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.guards.guard import MISSING, Kind
from stator.guards.guard_semantics import type_attribute
from stator.host.suspended_patches import names_of_class
from stator.host.value_kinds import mro_of
from stator.interp.services import VM
from stator.shapes.symbolic_values import UNREAD, unread_class
from stator.source import Pinned

late_mro = type.__getattribute__  # CPython makes that of some C types at their first use
flags_of = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9
_IMMUTABLE = 1 << 8


def ancestors(vm: VM, cls: type) -> tuple[type, ...]:
    """The MRO where it decides something: `cls.__bases__` can be assigned."""
    found = mro_of(cls) or late_mro(cls, "__mro__") or ()  # a class in the making has none yet
    if cls not in vm.classes.ancestry:
        vm.classes.ancestry.add(cls)
        for base in found if id(cls) in vm.fresh else (cls,):
            guard_field(vm, base, "__mro__")
    return found


def guard_field(vm: VM, cls: type, name: str) -> None:
    """Guard a field of a class: `__mro__`, `__bases__`, `__name__`, `__qualname__`."""
    if mro_of(cls) is None:  # the trace makes it just now
        vm.fresh[id(cls)] = cls
    if is_mutable_class(cls) and id(cls) not in vm.fresh:
        vm.heap.guard(Pinned(cls), Kind.TYPE_FIELD, (name, type.__dict__[name].__get__(cls)))


def is_mutable_class(cls: type) -> bool:
    """Whether someone could assign to the class's attributes (C types are immutable)."""
    return flags_of(cls) & (_HEAP_TYPE | _IMMUTABLE) == _HEAP_TYPE


def guard_metaclass(vm: VM, cls: type) -> None:
    """That a class has this metaclass becomes a fact, which `cls.__class__ = ...` changes."""
    if is_mutable_class(cls) and id(cls) not in vm.fresh:
        vm.heap.guard(Pinned(cls), Kind.TYPE, type(cls))


def find(vm: VM, cls: type, name: str) -> Any:
    """The raw class attribute, or MISSING; overlaid writes of the trace come first."""
    key = (cls, name)
    found = vm.classes.lookups.get(key, vm)
    if found is not vm:
        return found
    if cls in UNREAD:
        raise unread_class(cls, f"the attribute {name}")
    owner = None
    found = MISSING
    overlays = vm.classes.overlays
    deleted = False
    for base in mro_of(cls) or late_mro(cls, "__mro__") or ():  # a class in the making has none yet
        if vm.heap.changes.reached:
            vm.heap.changes.refuse_reached(base, name)
        if overlays and base in overlays and name in overlays[base]:
            value = overlays[base][name]
            if value is MISSING:
                deleted = True
                continue
            return value  # never memoised: the trace may write it again
        if deleted and is_mutable_class(base) and id(base) not in vm.fresh:
            # At the start of a call the class has its own still: what it inherits is a fact about the others.
            vm.heap.guard(Pinned(base), Kind.TYPE_ATTR, (name, type_attribute(base, name)))
        own = names_of_class(base)
        if name in own:
            owner, found = base, own[name]
            break
    if not deleted and is_mutable_class(cls) and id(cls) not in vm.fresh:
        vm.heap.guard(Pinned(cls), Kind.TYPE_ATTR, (name, found))
    if id(cls) in vm.fresh and (owner is None or id(owner) not in vm.fresh):
        for base in mro_of(cls):  # what it inherits from classes that were there before is a fact about those
            if id(base) not in vm.fresh and is_mutable_class(base):
                find(vm, base, name)
    if not (overlays or (owner is not None and id(owner) in vm.fresh) or id(cls) in vm.fresh):
        vm.classes.lookups[key] = found
    return found


def guard_refused(vm: VM, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """Guard the special methods of the arguments of C code that has failed, perhaps for one that is not there yet."""
    pending, seen = [*args, *(kwargs or {}).values()], set()
    for value in pending:
        cls = type(value)
        if cls is slice:
            pending += (value.start, value.stop, value.step)
        elif cls is list or cls is tuple or cls is dict:
            if id(value) not in seen:
                seen.add(id(value))
                pending += value.values() if cls is dict else value
        elif cls is FakeTensor:
            vm.guard_slots_of_tensors()
        else:
            vm.guard_special_methods(value)
