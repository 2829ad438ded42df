"""Rules for records of C++ that never change.   op._schema.arguments[0].name  ->  "self", under a guard

In: a record from outside, of a class whose fields pybind11 binds read-only.  Out: a constant field, guarded by its
value; a list of constants or of records, guarded in the same way.  Any other field breaks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import torch

from stator.breaks import Break
from stator.guards.guard import is_constant
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.native.rows_declare import underlying
from stator.source import Pinned

Reader = Callable[[object], object]
_FIELDS = {
    "torch._C.FunctionSchema": "name overload_name arguments returns is_mutable",
    "torch._C.Argument": "name N kwarg_only default_value is_out alias_info",
    "torch._C._dynamo.guards.GuardDebugInfo": "result verbose_code_parts num_guards_executed",
}


def _class_at(path: str) -> object:
    found: object = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name, None)
    return found


_CLASSES = {owner: fields.split() for path, fields in _FIELDS.items() if isinstance(owner := _class_at(path), type)}


def _readers() -> Iterator[Reader]:
    for owner, fields in _CLASSES.items():
        for name in fields:
            entry = inspect.getattr_static(owner, name, None)
            if isinstance(entry, property) and entry.fset is None:
                yield underlying(entry.fget)


def _as_tuple(reader: Reader, record: object) -> tuple[object, ...]:
    return tuple(reader(record))  # type: ignore[arg-type]


@rule(*_readers())
def _field(vm: VM, callee: Reader, record: object, /) -> object:
    tracker = vm.heap.tracker_of(record)
    original, source = (record, Pinned(record)) if tracker is None else (tracker.original, tracker.source)
    if type(original) not in _CLASSES:
        raise Break("SB005", f"a field of a {type(original).__name__}")
    if tracker is not None:
        vm.heap.guard_type(tracker)
    answer = callee(original)
    if is_constant(answer):
        vm.heap.guard_call(callee, answer, source)
        return answer
    if type(answer) is not list:
        raise Break("SB005", f"a {type(answer).__name__} of a {type(original).__name__}")
    if is_constant(tuple(answer)):
        vm.heap.guard_call(_as_tuple, tuple(answer), Pinned(callee), source)
        return answer
    if any(type(item) not in _CLASSES for item in answer):
        raise Break("SB005", f"a list of a {type(original).__name__}")
    known = original if tracker is None else vm.guard_identity(record)
    return [vm.heap.adopt(item, Pinned(item)) for item in callee(known)]  # type: ignore[attr-defined]
