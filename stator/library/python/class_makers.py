"""Rules for library functions that write classes.   namedtuple("P", "x y"), @dataclass, typing's aliases

They build source text, execute it and keep caches; all of that concerns only the class they make.  So they run
natively on fresh classes, and what they made counts as made by the trace.
"""

from __future__ import annotations

import _thread
import collections
import dataclasses
import enum
import types
import typing
from typing import Any

import typing_extensions

from stator.breaks import Break
from stator.host.value_kinds import is_a, module_of
from stator.interp.lookup import MISSING
from stator.interp.machine import is_own
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.objects.process_facts import is_in_repr
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM


def note_class(vm: VM, cls: type) -> Any:
    """A class made by library code during the trace, and the functions it got, are fresh."""
    vm.fresh[id(cls)] = cls
    for entry in cls.__dict__.values():
        inner = entry.__func__ if type(entry) in (classmethod, staticmethod) else entry
        if type(inner) is types.FunctionType and inner.__module__ == cls.__module__ \
                or type(inner) is types.FunctionType and inner.__qualname__.startswith(f"{cls.__qualname__}."):
            vm.fresh[id(inner)] = inner
    return cls


@rule(collections.namedtuple)
def _namedtuple(vm: VM, /, *args: object, **kwargs: object) -> Any:
    for value in (*args, *kwargs.values()):
        vm.heap.expose_deep(value)
    if kwargs.get("module") is None:
        kwargs["module"] = vm.running.scope.read("__name__")
    return note_class(vm, vm.native_unhooked(collections.namedtuple, args, kwargs))


@rule(dataclasses._process_class)  # type: ignore[attr-defined]
def _process_class(vm: VM, callee: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """@dataclass on a class of the trace: it reads annotations and writes methods, all on that class."""
    if id(cls) not in vm.fresh:
        raise Break("SB006", f"dataclasses.dataclass on {cls.__name__}, a class from outside")
    return note_class(vm, vm.native_unhooked(callee, (cls, *args), kwargs))




@rule(_thread.get_ident)
def _get_ident(vm: VM) -> int:
    """`__repr__` helpers use the thread's number as a key of their own; for anyone else it is a guarded fact."""
    number = _thread.get_ident()
    if not is_in_repr(vm):
        vm.heap.guard_call(_thread.get_ident, number)
    return number


def _subscriptions() -> list[Any]:
    """The `__getitem__` and `__class_getitem__` functions of typing's own classes."""
    found = []
    for owner in vars(typing).values():
        if not is_a(owner, type) or module_of(owner) != "typing":
            continue
        for name in ("__getitem__", "__class_getitem__", "__or__", "__ror__"):
            entry = owner.__dict__.get(name)
            entry = entry.__func__ if type(entry) is classmethod else entry
            if type(entry) in (types.FunctionType, types.ClassMethodDescriptorType):  # Generic is C code since 3.12
                found.append(entry)
    return found + _of_type_parameters()


def _of_type_parameters() -> list[Any]:
    """Methods of type variables that are C code, since 3.12: they call functions of typing."""
    owners = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple, typing.ParamSpecArgs, typing.ParamSpecKwargs)
    names = ("__typing_subst__", "__typing_prepare_subst__", "__mro_entries__", "__or__", "__ror__", "__eq__", "__ne__")
    entries = [owner.__dict__.get(name) for owner in owners for name in names]
    return [entry for entry in entries if type(entry) in (types.MethodDescriptorType, types.WrapperDescriptorType)]


@rule(*_subscriptions())
def _subscribe(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Subscription of a typing construct: pure, but for a cache that nobody can see."""
    for value in args:
        vm.heap.expose_deep(value)
    return vm.native_unhooked(callee, specialise_deep(vm, args), kwargs)


def caller_module(vm: VM, levels: int, default: str | None = "__main__") -> Any:
    """`__name__` of the module whose frame is `levels` above the running one."""
    frame = vm.frame
    while frame is not None and (levels or is_own(frame)):
        levels -= not is_own(frame)
        frame = frame.caller()
    name = MISSING if frame is None else frame.scope.read("__name__")
    return default if name is MISSING else name


@suspending_rule(enum.EnumType._create_)  # type: ignore[attr-defined]
def _create_enum(vm: VM, cont: Any, callee: Any, /, *args: Any, **kwargs: Any) -> None:
    """Enum("Colour", "RED GREEN"): the module is that of the second caller."""
    if kwargs.get("module") is None:
        kwargs["module"] = caller_module(vm, 1)
    vm.push(vm.frame_for(callee, args, kwargs), cont)


def _existing(module: types.ModuleType, name: str) -> list[Any]:
    """The function of that name, where this Python has it."""
    return [getattr(module, name)] if hasattr(module, name) else []


@rule(*[cls for cls in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)
        if types.FunctionType not in map(type, vars(cls).values())])
def _make_type_parameter(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """TypeVar("T"), where it is a C type: it belongs to the module of the frame that makes it."""
    made = vm.native_unhooked(callee, args, kwargs)
    setattr(made, "__module__", caller_module(vm, 0, None))
    return made


@rule(typing_extensions._has_generic_or_protocol_as_origin)  # type: ignore[attr-defined]
def _has_generic_origin(vm: VM) -> bool:
    """Reads the frame two levels up for its variable `origin`: here that is an interpreted frame."""
    frame = vm.running.caller()
    if frame is None or frame.scope is None or frame.scope.namespace.get("__name__") != "typing":
        return False
    names = frame.unit.local_names
    origin = frame.locals[names.index("origin")] if "origin" in names else None
    return any(origin is known for known in (typing.Generic, typing.Protocol, typing_extensions.Protocol))


# typing._caller(depth): the module in which a TypeVar or NewType is made
rule(*_existing(typing, "_caller"))(lambda vm, depth=1, default='__main__': caller_module(vm, depth, default))
# C code that calls a function of typing
suspending_rule(*[typing.Generic.__dict__["__init_subclass__"] for _ in _existing(typing, "_generic_init_subclass")])(
    lambda vm, cont, /, *args, **kwargs: vm.call(getattr(typing, "_generic_init_subclass"), args, kwargs, cont))
