"""Facts that hold in one process alone.   id(x), the order of {"a", "b"}  ->  why an entry is not stored

Addresses differ from process to process, hashes of strings with PYTHONHASHSEED. Texts show addresses.
"""

from __future__ import annotations

import _json
import copy
import dataclasses
import enum
import re
import reprlib
import types
from collections.abc import Sequence
from typing import Any

import torch

from stator.breaks import Break, Strategy
from stator.guards.guard import Kind
from stator.heap.pure_readers import BOUND, hashed_parts
from stator.heap.raw_access import CONSTANT_TYPES, raw_members
from stator.heap.set_orders import order_of
from stator.heap.tracker import VariableTracker
from stator.host.value_kinds import is_a
from stator.interp.objects.set_order import additions_of, members_as_added
from stator.interp.services import VM
from stator.native.rows_declare import Row
from stator.source import Pinned

_ADDRESS = re.compile("0x([0-9a-f]+)")


def check_order(vm: VM, value: object) -> None:
    """Before the order of a set that the trace has made counts.

    Objects made inside may lie anywhere, so any order is one of CPython's: the residual must not make them again, for
    a set of those could have another one.
    """
    members = list(raw_members(value))
    members_as_added(vm, value)  # breaks where the set could not be made as it is in eager
    for item in members if len(members) > 1 else ():
        _check_address(vm, item)
    note_order(vm, value)


def _check_address(vm: VM, item: object) -> None:
    kind = type(item)
    if (parts := hashed_parts(item)) is not None:
        for part in parts:
            _check_address(vm, part)
    elif kind in BOUND:  # methods hash by the address of their object, whatever that hashes by
        if not is_a(receiver := item.__self__, (types.ModuleType, type)):  # type: ignore[attr-defined]
            _note_address(vm, receiver, type(receiver) not in CONSTANT_TYPES)
    else:
        _note_address(vm, item, kind.__hash__ is object.__hash__ and kind not in CONSTANT_TYPES)


def _note_address(vm: VM, item: object, decides: bool) -> None:
    if decides and (vm.heap.tracker_of(item) is not None or Strategy.SET_ORDER in vm.turned_off) \
            or is_a(item, torch.Tensor):
        raise Break("SB013", "the order of a set whose members hash by identity")
    if decides or id(item) in vm.fresh:
        vm.identity.ordered.add(id(item))


def note_order(vm: VM, value: Any, is_read: bool = True) -> None:
    """Note that the order of a set which the trace has made counts: another process may have another one."""
    kinds = {hash_kind(item) for item in raw_members(value)} if len(value) > 1 else ()
    if "seed" in kinds:
        order = order_of(value, is_read, additions_of(vm, value))
        vm.identity.elsewhere[order] = order
    if "address" in kinds:
        why = f"the order of a set in line {vm.running.line}" if is_read else "the order of a set that the call makes"
        vm.identity.of_process = vm.identity.of_process or why


def hash_kind(item: object) -> str:
    """The state, beyond the value, that its hash depends on."""
    if type(item) is tuple:
        return next((kind for kind in ("address", "seed") if kind in map(hash_kind, item)), "")
    if type(item) in (str, bytes) or is_a(item, enum.Enum):
        return "seed"
    return "" if type(item) in (int, float, bool, complex) else "address"


def note_number(vm: VM, function: str) -> None:
    """Note that a number belongs to this process, unless it is a key alone: in copy.deepcopy, in `__hash__`."""
    frame = vm.running
    if (frame.scope is None or frame.scope.namespace is not vars(copy)) and frame.code.co_name != "__hash__":
        vm.identity.of_process = vm.identity.of_process or f"the result of {function}() in line {frame.line}"


def note_hashes(vm: VM) -> None:
    """Note that the residual holds hashes, which may be those of strings or addresses."""
    vm.identity.of_process = vm.identity.of_process or "hashes of a dict or a set that the call makes"


def note_location(vm: VM, code: types.CodeType) -> None:
    """Note that a line or the path of a code object was read: where its function has moved, it has others."""
    vm.identity.elsewhere[id(code)] = code


def note_read(vm: VM, row: Row, args: Sequence[Any]) -> None:
    """Note facts beside its arguments that the result of a C function depends on."""
    if row.shows_lines:
        for each in args:
            if type(each) is types.CodeType:
                note_location(vm, each)
    if row.depends is not None:
        names = tuple([value for value in args if type(value) is str])
        vm.heap.guard_call(row.depends, row.depends(*names), *[Pinned(name) for name in names])


def is_in_repr(vm: VM) -> bool:
    """Whether the running code makes texts of objects that hold themselves; its keys are seen by nobody else."""
    return vm.running.code.co_filename in (dataclasses.__file__, reprlib.__file__)


def note_constant(vm: VM, function: str) -> str:
    """Note a result that the user declares constant: its function may read what another process has otherwise."""
    vm.identity.of_process = vm.identity.of_process or f"the result of {function}, assumed constant"
    return function


def note_standin(vm: VM, tracker: VariableTracker) -> None:
    vm.heap.guard(tracker.source, Kind.ID, tracker.original)
    vm.identity.of_process = "a text with the address of an object"
    vm.identity.standins[f"{id(tracker.standin):x}"] = f"{id(tracker.original):x}"


def with_originals(vm: VM, text: object, fn: object = None) -> object:
    """A text that C code has made, with the addresses of the user's objects in place of those of their stand-ins."""
    if repr(type(fn)) == repr(_json.make_encoder):  # or a copy; a fresh list of parts, a tuple since 3.12
        return type(text)([with_originals(vm, part) for part in text])  # type: ignore[call-arg, attr-defined]
    for digits in _ADDRESS.findall(text) if type(text) is str else ():  # shown by an object of C code that holds it
        if (tracker := vm.heap.by_standin.get(int(digits, 16))) is not None and tracker.standin is not tracker.original:
            note_standin(vm, tracker)
    for digits, original in vm.identity.standins.items():
        if type(text) is str:
            text = text.replace(digits, original)
        elif type(text) is bytes or type(text) is bytearray:
            text = text.replace(digits.encode(), original.encode())
    return text
