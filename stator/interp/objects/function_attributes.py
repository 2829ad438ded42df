"""Members of outside functions that the program assigns.   f.__name__ = "g"  ->  kept beside f, written back at the end

In: an assignment to a C member of a function.  Out: the value in `vm.functions.members`, which reads find first.
CPython checks each value on a function of ours, so its errors are CPython's own.  C code that would read the member
from the function itself breaks (`refuse_renamed`).
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.heap import Heap
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING
from stator.interp.services import VM
from stator.source import Attr, Pinned

_KEPT = frozenset({"__name__", "__qualname__", "__doc__", "__module__", "__defaults__"})
_CODE = frozenset({"__code__", "__kwdefaults__", "__annotations__", "__type_params__"})  # read in many ways
_WRAPPERS = (classmethod, staticmethod, types.MethodType)


def _trial() -> None:
    """Receive assignments whose value CPython is to check."""


def assign(vm: VM, descr: Any, fn: types.FunctionType, name: str, value: object) -> bool:
    """Assign to a member of an outside function, MISSING deletes; False: not a member that is kept here."""
    if name in _CODE:
        return False
    trial = types.FunctionType(_trial.__code__, {})
    try:
        descr.__delete__(trial) if value is MISSING else descr.__set__(trial, value)
    except (AttributeError, TypeError) as error:
        raise Raised(error) from None
    if name not in _KEPT:
        return False
    members = vm.functions.members.setdefault(fn, {})
    members[name] = descr.__get__(trial)
    if name == "__defaults__":
        vm.functions.defaults[id(fn)] = members[name] or ()
    return True


def read(vm: VM, fn: types.FunctionType, name: str) -> Any:
    """A member as the program has assigned it, or MISSING."""
    return vm.functions.members.get(fn, {}).get(name, MISSING)


def names_of_function(vm: VM, fn: types.FunctionType) -> tuple[str, str]:
    """The names that generators and coroutines of a function get."""
    members = vm.functions.members.get(fn, {})
    return members.get("__name__", fn.__name__), members.get("__qualname__", fn.__qualname__)


def refuse_renamed(vm: VM, value: Any) -> None:
    """Break where C code would read a member that the program has assigned."""
    while is_a(value, _WRAPPERS):
        value = value.__func__
    if type(value) is types.FunctionType and value in vm.functions.members:
        raise Break("SB006", f"{value.__name__} passed to C code after the program has assigned to its members")


def guard_distinct(heap: Heap, members: dict[types.FunctionType, dict[str, object]]) -> None:
    """Guard that no other source denotes a changed function; their code distinguishes the others."""
    for fn in members:
        place = heap.source_of(fn)
        for source in [*heap.sources.values()]:
            other = source.obj if type(source) is Pinned else next(
                (each for each in heap.kept if heap.sources.get(id(each)) is source), None)
            if type(other) is not types.FunctionType or other is fn or other.__code__ is not fn.__code__:
                continue
            if type(place) is not Pinned and type(source) is not Pinned:
                heap.guard(place, Kind.NOT_ALIAS, source)
            elif type(place) is not Pinned or type(source) is not Pinned:
                mine, known = (source, fn) if type(place) is Pinned else (place, other)
                heap.guard(mine, Kind.NOT_ID, known)


def namespace_of_function(vm: VM, fn: types.FunctionType, names: Any, name: str) -> object:
    """The one dict that holds the globals or builtins of a function, for whoever reads names or the dict."""
    if type(names) is not dict or vm.heap.tracker_of(names) is not None:
        return names  # made by the program for exec()
    if id(fn) not in vm.fresh:
        vm.heap.guard(Attr(vm.heap.source_of(fn), name), Kind.ID, names)
    elif names is not fn.__globals__ and names is not builtins.__dict__:
        return names
    return vm.heap.scope(names).view()


def refuse_asked_module(module: object) -> None:
    """Break at an assignment to the module whose functions C code asks for large numbers (since 3.12)."""
    if module is sys.modules.get("_pylong"):
        raise Break("SB006", "assignment to _pylong, whose functions C code calls")
