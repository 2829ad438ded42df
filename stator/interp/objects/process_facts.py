"""Facts that hold in one process alone.   id(x), the order of {"a", "b"}  ->  why an entry is not stored

Addresses differ from process to process, hashes of strings with PYTHONHASHSEED.
"""

from __future__ import annotations

import copy
import enum
from typing import Any

from stator.host.value_kinds import is_a
from stator.interp.services import VM


def note_order(vm: VM, value: Any) -> None:
    """Note that the order of a set which the trace has made counts: another process may have another one."""
    kinds = {hash_kind(item) for item in value} if len(value) > 1 else ()
    vm.identity.of_seed = vm.identity.of_seed or "seed" in kinds
    if "address" in kinds:
        vm.identity.of_process = vm.identity.of_process or f"the order of a set in line {vm.running.line}"


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
    if frame.scope.namespace is not vars(copy) and frame.code.co_name != "__hash__":
        vm.identity.of_process = vm.identity.of_process or f"the result of {function}() in line {frame.line}"


def note_constant(vm: VM, function: str) -> str:
    """Note a result that the user declares constant: its function may read what another process has otherwise."""
    vm.identity.of_process = vm.identity.of_process or f"the result of {function}, assumed constant"
    return function
