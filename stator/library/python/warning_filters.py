"""Rules for the filters of warnings.   with catch_warnings(): simplefilter("ignore")  ->  effects, in their order

A change of filters is replayed among the warnings, after the graph: each warning meets the filters of its moment.  A
filter of outside that makes exceptions of warnings breaks.  With `record=True` the trace fills the list with
WarningMessages where a filter of the program decides, and raises where that filter is "error"; operations that may
warn as they run break.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.graph.state.quiet_logging import warnings_can_raise
from stator.host.value_kinds import is_a
from stator.interp.lookup import MISSING
from stator.interp.noted_effects import PlainCall, list_of_warnings, may_break, note
from stator.interp.objects.attributes import read_instance_dict
from stator.interp.recorded_warnings import RECORDED, begin_recording, end_recording, refused, watch_list
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

__all__ = ["FiltersKept", "require_ended", "saved_can_raise", "watch_warnings"]
_OPEN: Any = warnings.catch_warnings.__enter__
_CLOSE: Any = warnings.catch_warnings.__exit__
_QUIET = frozenset({"default", "always", "ignore", "module", "once"})


@dataclass(frozen=True)
class FiltersKept:
    """A `catch_warnings` is entered, or left, which puts the filters of before back."""

    manager: Any
    method: Any


def _is_plain(vm: VM, args: Any, kwargs: Any) -> bool:
    """Whether the arguments are constants that make a filter."""
    values = dict(zip(("action",), args, strict=False)) | kwargs
    action = values.pop("action", None)
    if action not in _QUIET and action != "error":
        return False
    for value in (*args[1:], *values.values()):
        if is_a(value, type):
            if id(value) in vm.fresh or not issubclass(value, Warning):
                return False
        elif type(value) is str:
            try:
                re.compile(value)
            except re.error:
                return False
        elif type(value) not in (bool, int) or value < 0:
            return False
    return True


@rule(warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
def _change(vm: VM, callee: Any, /, *args: object, **kwargs: object) -> None:
    may_break(vm, f"warnings.{callee.__name__}", warnings)
    if warnings_can_raise():
        raise refused("a filter makes exceptions of warnings")
    if callee is not warnings.resetwarnings and not _is_plain(vm, args, kwargs):
        raise refused("to others than plain ones that raise nothing")
    vm.heap.guard_call(warnings_can_raise, False)
    vm.warnings.changed = True
    if "error" in (args[:1] or (kwargs.get("action"),)):
        _watch_errors(vm)
    if vm.warnings.recordings:
        vm.warnings.recordings[-1].change(callee, args, kwargs)
    note(vm, PlainCall(callee, args, kwargs), False, warnings)


@rule(_OPEN)
def _enter(vm: VM, self: object) -> Any:
    manager = _plain_manager(vm, self)
    if read_instance_dict(vm, manager, "_entered") is not False or id(manager) in vm.warnings.managers:
        raise refused("a catch_warnings is entered twice")
    recorded = read_instance_dict(vm, manager, "_record") is True
    if recorded or vm.warnings.recordings:
        begin_recording(vm, manager, [] if recorded else vm.warnings.recordings[-1].log)
    vm.warnings.managers[id(manager)] = manager
    note(vm, FiltersKept(manager, _OPEN), False, warnings)
    return vm.warnings.recordings[-1].log if recorded else None


def _watch_errors(vm: VM) -> None:
    """From now on a filter makes exceptions of warnings, until the innermost manager is left."""
    manager = next(reversed(vm.warnings.managers.values()), None)
    if manager is None:
        raise refused("to one that makes exceptions of warnings, outside a catch_warnings of the call")
    if not vm.warnings.recordings or vm.warnings.recordings[-1].manager is not manager:
        begin_recording(vm, manager, None)


def watch_warnings(vm: VM) -> None:
    """At the start of a trace: the list of a `catch_warnings(record=True)` that was entered before it."""
    log = list_of_warnings(vm)
    if log is not None:
        watch_list(vm, log)


def require_ended(vm: VM) -> None:
    if vm.warnings.recordings:
        raise Break("SB006", f"{RECORDED}, at the end of the call", turn_off=RECORDED)


@rule(_CLOSE)
def _exit(vm: VM, self: object, *exc_info: object) -> None:
    manager = _plain_manager(vm, self)
    if vm.warnings.recordings and (vm.warnings.recordings[-1].manager is manager or id(manager) not in
                                   vm.warnings.managers):
        end_recording(vm, manager)
    if vm.warnings.managers.pop(id(manager), None) is None:
        tracker = vm.heap.by_standin.get(id(manager))
        if tracker is None or read_instance_dict(vm, manager, "_entered") is not True:
            raise refused("a catch_warnings is left that was not entered")
        if saved_can_raise(tracker.original):
            raise refused("a filter makes exceptions of warnings")
        vm.heap.guard_call(saved_can_raise, False, tracker.source)
    vm.warnings.changed = True
    note(vm, FiltersKept(manager, _CLOSE), False, warnings)


def _plain_manager(vm: VM, manager: object) -> Any:
    """One that only keeps the filters, or records the program's warnings."""
    may_break(vm, "warnings.catch_warnings", warnings)
    if type(manager) is not warnings.catch_warnings or type(read_instance_dict(vm, manager, "_record")) is not bool \
            or read_instance_dict(vm, manager, "_module") is not warnings \
            or read_instance_dict(vm, manager, "_filter") not in (None, MISSING):
        raise refused("by a catch_warnings that does more than keep them")
    if warnings_can_raise():
        raise refused("a filter makes exceptions of warnings")
    vm.heap.guard_call(warnings_can_raise, False)
    return manager


def saved_can_raise(manager: object) -> bool:
    """A pure reader for guards: whether the filters that a `catch_warnings` puts back make exceptions of warnings."""
    return any(entry[0] == "error" for entry in vars(manager).get("_filters", ()))
