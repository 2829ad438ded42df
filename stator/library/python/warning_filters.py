"""Rules for the filters of warnings.   with catch_warnings(): simplefilter("ignore")  ->  effects, in their order

The filters are the process's.  A change of them is noted among the warnings and replayed with them, after the graph:
each warning of the program meets the filters of its moment.  Where a filter would make exceptions of warnings the call
breaks.  With `record=True` the program gets a list that the trace fills (see recorded_warnings).
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.graph.state.quiet_logging import muted, warnings_can_raise
from stator.guards.guard import Kind
from stator.host.value_kinds import is_a
from stator.interp.lookup import MISSING
from stator.interp.noted_effects import list_of_warnings, may_break, note
from stator.interp.objects.attributes import read_instance_dict
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.python.state.recorded_warnings import Recording, listening, watch_list
from stator.source import CallOf, Pinned
from stator.strategy import Strategy

RECORDED = Strategy.RECORDED_WARNINGS

__all__ = ["FiltersChanged", "FiltersKept", "require_ended", "saved_can_raise", "watch_warnings"]
_OPEN: Any = warnings.catch_warnings.__enter__
_CLOSE: Any = warnings.catch_warnings.__exit__


@dataclass(frozen=True)
class FiltersChanged:
    """A call of one of warnings' own functions, with its plain arguments."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class FiltersKept:
    """A `catch_warnings` is entered, or left, which puts the filters of before back."""

    manager: Any
    method: Any


def _refused(what: str) -> Break:
    return Break("SB006", f"the filters of warnings are changed: {what}")


def _is_quiet(vm: VM, args: Any, kwargs: Any) -> bool:
    """Whether the arguments are constants that make a filter, which makes no exceptions."""
    values = dict(zip(("action",), args, strict=False)) | kwargs
    if values.pop("action", None) not in _QUIET:
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


_QUIET = frozenset({"default", "always", "ignore", "module", "once"})


@rule(warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
def _change(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> None:
    may_break(vm, f"warnings.{callee.__name__}", warnings)
    if warnings_can_raise():
        raise _refused("a filter makes exceptions of warnings")
    if callee is not warnings.resetwarnings and not _is_quiet(vm, args, kwargs):
        raise _refused("to others than plain ones that raise nothing")
    vm.heap.guard(CallOf(Pinned(warnings_can_raise)), Kind.FRESH_CALL, False)
    vm.warnings.changed = True
    if vm.warnings.recordings:
        vm.warnings.recordings[-1].change(callee, args, kwargs)
    note(vm, FiltersChanged(callee, args, kwargs), False, warnings)


@rule(_OPEN)
def _enter(vm: VM, self: Any) -> Any:
    manager = _plain_manager(vm, self)
    if read_instance_dict(vm, manager, "_entered") is not False or id(manager) in vm.warnings.managers:
        raise _refused("a catch_warnings is entered twice")
    recorded = read_instance_dict(vm, manager, "_record") is True
    if recorded:
        begin_recording(vm, manager)
    elif vm.warnings.recordings:
        raise _refused("by a catch_warnings inside one that records")
    vm.warnings.managers[id(manager)] = manager
    note(vm, FiltersKept(manager, _OPEN), False, warnings)
    return vm.warnings.recordings[-1].log if recorded else None


def begin_recording(vm: VM, manager: object) -> None:
    recorder = vm.recorder
    if RECORDED in vm.turned_off:
        raise _refused(f"by catch_warnings(record=True), and under it: {vm.policy.why_off.get(RECORDED, '')}")
    if recorder.scope.enclosing is not None or recorder.wrappers.behind or vm.modes.active \
            or id(manager) in vm.heap.by_standin:
        raise _refused("by catch_warnings(record=True)")
    outer = vm.warnings.recordings[-1] if vm.warnings.recordings else None
    vm.warnings.recordings.append(Recording(manager, outer, recorder.propagation.enabled))
    recorder.propagation.enabled = False  # a remembered operation says nothing
    recorder.services.listening = listening


def end_recording(vm: VM, manager: object) -> None:
    recording = vm.warnings.recordings[-1]
    if recording.manager is not manager:
        raise _refused("by a catch_warnings(record=True) that is not the last one entered")
    vm.warnings.recordings.pop()
    if not vm.warnings.recordings:
        vm.recorder.services.listening = muted
        vm.recorder.propagation.enabled = recording.propagates


def watch_warnings(vm: VM) -> None:
    """At the start of a trace: the list of a `catch_warnings(record=True)` that was entered before it."""
    log = list_of_warnings(vm)
    if log is not None:
        watch_list(vm, log)


def require_ended(vm: VM) -> None:
    if vm.warnings.recordings:
        raise Break("SB006", f"{RECORDED}, at the end of the call", turn_off=RECORDED)


@rule(_CLOSE)
def _exit(vm: VM, self: Any, *exc_info: Any) -> None:
    manager = _plain_manager(vm, self)
    if vm.warnings.recordings:
        end_recording(vm, manager)
    if vm.warnings.managers.pop(id(manager), None) is None:
        tracker = vm.heap.by_standin.get(id(manager))
        if tracker is None or read_instance_dict(vm, manager, "_entered") is not True:
            raise _refused("a catch_warnings is left that was not entered")
        if saved_can_raise(tracker.original):
            raise _refused("a filter makes exceptions of warnings")
        vm.heap.guard(CallOf(Pinned(saved_can_raise), (tracker.source,)), Kind.FRESH_CALL, False)
    vm.warnings.changed = True
    note(vm, FiltersKept(manager, _CLOSE), False, warnings)


def _plain_manager(vm: VM, manager: object) -> Any:
    """One that only keeps the filters, or records what the program says."""
    may_break(vm, "warnings.catch_warnings", warnings)
    if type(manager) is not warnings.catch_warnings or type(read_instance_dict(vm, manager, "_record")) is not bool \
            or read_instance_dict(vm, manager, "_module") is not warnings \
            or read_instance_dict(vm, manager, "_filter") not in (None, MISSING):
        raise _refused("by a catch_warnings that does more than keep them")
    if warnings_can_raise():
        raise _refused("a filter makes exceptions of warnings")
    vm.heap.guard(CallOf(Pinned(warnings_can_raise)), Kind.FRESH_CALL, False)
    return manager


def saved_can_raise(manager: object) -> bool:
    """A pure reader for guards: whether the filters that a `catch_warnings` puts back make exceptions of warnings."""
    return any(entry[0] == "error" for entry in vars(manager).get("_filters", ()))
