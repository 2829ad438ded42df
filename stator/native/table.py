"""The native table: which C callables may run at trace time, and how.

    [].append      ->  Row(list.append, PURE_SHELL, mutates=True)
    time.time      ->  Row(time.time, IMPURE_READ, code="SB013")
    ext.unknown    ->  None: default deny

In: any callable. Out: its row, found by the object that the call finally reaches, never by name, or None.
"""

from __future__ import annotations

import types
from typing import Any

from stator.host.value_kinds import is_a, mro_of
from stator.native import rows_arguments, rows_declare, rows_packages, rows_system  # noqa: F401  (declare the rows)
from stator.native.rows_declare import NativeClass, Row

__all__ = ["NO_RECEIVER", "NativeClass", "Row", "lookup", "name_of", "receiver_split"]
# Their type has a `__call__` slot as well, but a row of that slot would speak for every function there is.
_METHOD_KINDS = (rows_declare.MethodDescriptor, rows_declare.ClassMethodDescriptor)
_THEMSELVES = (types.FunctionType, rows_declare.SlotWrapper, *_METHOD_KINDS)
_candidates: dict[tuple[type, str, bool], tuple[Any, ...]] = {}  # keeps its types alive
_CANDIDATES_LIMIT = 4096


class _NoReceiver:
    def __repr__(self) -> str:
        return "NO_RECEIVER"


NO_RECEIVER = _NoReceiver()  # None can be a receiver: None.__bool__


def lookup(callable_: object) -> Row | None:
    """The row of what a call of `callable_` reaches, or None where the table does not know it."""
    row = rows_declare.ROWS.get(id(callable_))
    if row is not None:
        return row
    row = rows_declare.ROWS.get(id(receiver_split(callable_)[0]))
    return lookup(callable_) if row is None and rows_packages.declare_once() else row


def receiver_split(callable_: Any) -> tuple[Any, Any]:
    """The descriptor behind a bound C callable and its receiver; (callable_, NO_RECEIVER) where it has none.

    `[].append` -> (list.append, []); an instance of a C type with `__call__`, a partial -> (partial.__call__, it).
    """
    kind = type(callable_)
    if is_a(callable_, types.BuiltinFunctionType):  # or its subtype, which knows its class (METH_METHOD)
        return _split_builtin(callable_)
    if kind is types.MethodWrapperType:
        return callable_.__objclass__.__dict__[callable_.__name__], callable_.__self__
    if kind is rows_declare.INSTANCE_METHOD:
        return callable_.__func__, NO_RECEIVER
    if kind is types.MethodType:
        return callable_.__func__, callable_.__self__
    if id(callable_) in rows_declare.ROWS or kind in _THEMSELVES or is_a(callable_, (type, types.ModuleType)):
        return callable_, NO_RECEIVER
    for owner in mro_of(kind):
        slot = owner.__dict__.get("__call__")
        if slot is not None:
            return (slot, callable_) if type(slot) is rows_declare.SlotWrapper else (callable_, NO_RECEIVER)
    return callable_, NO_RECEIVER


def _split_builtin(function: Any) -> tuple[Any, Any]:
    """A builtin's receiver is a module (a plain function), a type (`__new__`, class methods) or an instance."""
    receiver = function.__self__
    if receiver is None or is_a(receiver, types.ModuleType) or id(function) in rows_declare.ROWS:
        return function, NO_RECEIVER
    name = function.__name__
    for owner, instance in ((type(receiver), receiver), *([(receiver, None)] if is_a(receiver, type) else [])):
        for descriptor in _method_candidates(owner, name, of_instance=instance is not None):
            # Builtins are equal when receiver and C function are the same.
            if descriptor.__get__(instance, owner) == function:
                return descriptor, receiver
    return function, NO_RECEIVER


def _method_candidates(owner: type, name: str, of_instance: bool) -> tuple[Any, ...]:
    """The C method descriptors called `name` along the type's method resolution order, memoised."""
    key = (owner, name, of_instance)
    found = _candidates.get(key)
    if found is None:
        wanted = _METHOD_KINDS if of_instance else (rows_declare.ClassMethodDescriptor,)
        entries = (base.__dict__.get(name) for base in mro_of(owner))
        found = tuple(entry for entry in entries if type(entry) in wanted)
        if len(_candidates) >= _CANDIDATES_LIMIT:
            _candidates.clear()
        _candidates[key] = found
    return found


def name_of(row: Row) -> str:
    """Where the row's object was found, for messages: `list.append`."""
    return rows_declare.NAMES[id(row.obj)]
