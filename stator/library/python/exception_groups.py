"""Rules for groups of exceptions.   group.split(ValueError)  ->  C walks a group made inside; this file walks others

A group from outside stands for itself.  Its members are read under guards, and the parts that are made of it are new
groups, as CPython makes them: `derive` of its class, then traceback, cause, context and notes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, find
from stator.interp.objects import operators
from stator.interp.outside_exceptions import restores_traceback
from stator.interp.rule_registry import rule
from stator.interp.vm import VM


@rule(BaseExceptionGroup.split, BaseExceptionGroup.subgroup, BaseExceptionGroup.derive)
def _take_apart(vm: VM, callee: Callable[..., object], group: BaseExceptionGroup, /, *args: object) -> object:
    if vm.heap.tracker_of(group) is not None and len(args) == 1:
        if callee is BaseExceptionGroup.derive:
            return vm.call_sync(BaseExceptionGroup, (_read(vm, group, "message"), *args))
        _check_condition(vm, callee, args[0])
        match, rest = _split(vm, group, args[0], callee is BaseExceptionGroup.split)
        return (match, rest) if callee is BaseExceptionGroup.split else match
    vm.heap.expose_deep((group, *args))
    for value in (group, *args):
        if vm.heap.is_opaque(value):
            raise Break("SB005", "a group of exceptions from outside")
    given = [vm.python_callable(value) if type(value) is types.BuiltinFunctionType else value for value in args]
    return vm.native(callee, (group, *given))


def _read(vm: VM, value: object, name: str) -> object:
    found: object = vm.call_sync(getattr, (value, name))
    return found


def _check_condition(vm: VM, callee: Callable[..., object], condition: object) -> None:
    """Raise what CPython raises for a condition that is none."""
    if not _is_predicate(vm, condition):
        vm.native_unhooked(callee, (ExceptionGroup("", [ValueError()]), condition))


def _takes_callables() -> bool:
    """Whether a condition may be any callable that is no class (since CPython 3.13); before, a function of Python."""
    try:
        return ExceptionGroup("", [ValueError()]).split(functools.partial(bool))[0] is not None
    except TypeError:
        return False


_TAKES_CALLABLES = _takes_callables()


def _is_predicate(vm: VM, condition: object) -> bool:
    return type(condition) is types.FunctionType or _TAKES_CALLABLES and not is_a(condition, type) \
        and find(vm, type(condition), "__call__") is not MISSING


def _split(vm: VM, exc: object, condition: object, with_rest: bool) -> tuple[object, object]:
    """The part of an exception that matches, and the rest of it."""
    test, given = (condition, (exc,)) if _is_predicate(vm, condition) else (isinstance, (exc, condition))
    matches = vm.call_sync(test, given)
    if operators.truth(vm, matches):
        return exc, None
    if not isinstance(exc, BaseExceptionGroup):
        return None, exc
    pairs = [_split(vm, each, condition, with_rest) for each in vm.collect(_read(vm, exc, "exceptions"))]
    matching = _subset(vm, exc, [match for match, _ in pairs if match is not None])
    return matching, _subset(vm, exc, [rest for _, rest in pairs if rest is not None]) if with_rest else None


def _subset(vm: VM, group: BaseExceptionGroup, members: list[object]) -> object:
    if not members:
        return None
    made = vm.call_sync(_read(vm, group, "derive"), (members,))
    if not is_a(made, BaseExceptionGroup):
        raise Raised(TypeError("derive must return an instance of BaseExceptionGroup"))
    if vm.heap.tracker_of(made) is not None:
        raise Break("SB005", "derive() of a group that gives an exception from outside")
    made.__traceback__ = vm.traceback_of(group)
    made.__context__, made.__cause__ = _read(vm, group, "__context__"), _read(vm, group, "__cause__")
    notes = vm.optional_attr(group, "__notes__")
    if notes is not MISSING:
        vm.call_sync(setattr, (made, "__notes__", vm.collect(notes)))
    return made


@rule(BaseException.with_traceback)
def _with_traceback(vm: VM, exc: BaseException, traceback: types.TracebackType | None, /) -> BaseException:
    """An exception from outside can have a traceback back that it had before."""
    if not vm.is_from_outside(exc):
        return vm.native(BaseException.with_traceback, (exc, traceback))  # type: ignore[no-any-return]
    if not restores_traceback(vm, exc, traceback):
        raise Break("SB006", "BaseException.with_traceback of an object from outside")
    return exc
