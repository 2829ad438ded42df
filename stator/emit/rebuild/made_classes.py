"""Classes made inside the trace.   class Result: ... returned  ->  type.__new__(type, 'Result', (), {...}), filled

The metaclass's own code ran while tracing; here the finished class is put together again from its dict, in two
phases (allocate, then set each attribute), so that methods may refer to it through their `__class__` cell.
"""

from __future__ import annotations

import _abc
import abc
import types
from typing import Any

import torch

from stator.breaks import Break
from stator.emit.services import Rebuilder
from stator.host.value_kinds import module_of

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
    first += [f"{key!r}: {build.value(namespace[key])}" for key in taken]
    make = writer.constant(new_class, "new_class")
    name = build.variable(value, value.__name__, f"{make}({build.value(meta)}, {value.__name__!r}, "
                                                 f"({', '.join(bases)},), {{{', '.join(first)}}})")
    store = writer.constant(type.__setattr__, "set_class_attribute")
    for key, entry in list(namespace.items()):
        if key in _AUTOMATIC or key in taken or (
                type(entry) is types.MemberDescriptorType and entry.__objclass__ is value):
            continue
        if key == "__doc__" and entry is None:
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
