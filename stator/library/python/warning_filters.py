"""Rules for the filters of warnings.   with catch_warnings(): simplefilter("ignore")  ->  effects, in their order

A change of filters is replayed among the warnings, after the graph: each warning meets the filters of its moment.  A
filter that makes exceptions of warnings breaks.  With `record=True` the trace fills the list with WarningMessages where
a filter of the program decides; operations that may warn as they run break.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from stator.breaks import Break, Strategy
from stator.graph.state.quiet_logging import muted, warnings_can_raise
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING
from stator.interp.noted_effects import PlainCall, list_of_warnings, may_break, note
from stator.interp.objects.attributes import read_instance_dict
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import Source

RECORDED = Strategy.RECORDED_WARNINGS

# Operations whose kernels say nothing. Of the others a rule for fakes does not know what they say as they run: casts of
# complex numbers, masks of bytes, results that are resized, degrees of freedom that are used up.
_SILENT = frozenset("""
    add sub mul truediv div floordiv mod neg pow matmul mm bmm linear addmm
    abs sin cos tan tanh sigmoid relu gelu silu exp log log1p sqrt rsqrt square reciprocal erf softplus floor ceil round
    eq ne lt le gt ge maximum minimum clamp isnan isinf isfinite logical_and logical_or logical_not
    sum mean amax amin argmax argmin cumsum softmax log_softmax layer_norm
    view reshape flatten unsqueeze squeeze transpose permute expand contiguous clone detach cat stack chunk split unbind
    zeros ones empty full zeros_like ones_like empty_like full_like arange eye rand randn rand_like randn_like
    dropout embedding size dim numel stride storage_offset is_contiguous""".split())
_PROPERTIES = frozenset(name for name, each in inspect.getmembers_static(torch.Tensor)
                        if type(each) in (types.GetSetDescriptorType, property))  # which only look
__all__ = ["FiltersKept", "require_ended", "saved_can_raise", "watch_warnings"]
_OPEN: Any = warnings.catch_warnings.__enter__
_CLOSE: Any = warnings.catch_warnings.__exit__
_QUIET = frozenset({"default", "always", "ignore", "module", "once"})


class Recording:
    """One entered manager: its list, and the filters set since, the first to be tried in front."""

    def __init__(self, manager: object, outer: Recording | None, propagates: bool) -> None:
        self.manager, self.propagates = manager, propagates
        self.log: list[Any] = []
        self.filters: list[tuple[Any, ...]] = list(outer.filters) if outer is not None else []
        self.reset: bool = outer is not None and outer.reset  # whether there are no filters but these
        self.seen: set[Any] = set()  # what registries hold since the filters were last changed

    def change(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """simplefilter, filterwarnings or resetwarnings, with arguments that were found plain."""
        self.seen.clear()
        if function is warnings.resetwarnings:
            self.filters, self.reset = [], True
            return
        names = ("action", "category", "lineno", "append") if function is warnings.simplefilter else \
            ("action", "message", "category", "module", "lineno", "append")
        given = dict(zip(names, args, strict=False)) | kwargs
        entry = (given["action"], re.compile(given.get("message", ""), re.I), given.get("category", Warning),
                 re.compile(given.get("module", "")), given.get("lineno", 0))
        if entry in self.filters and not given.get("append"):
            self.filters.remove(entry)
        if not given.get("append"):
            self.filters.insert(0, entry)
        elif not self.reset:
            raise Break("SB006", f"{RECORDED}, by a filter behind those of outside")
        elif entry not in self.filters:
            self.filters.append(entry)

    def action_for(self, vm: VM, text: str, category: type, module: str, line: int) -> str:
        for action, message, kind, where, number in self.filters:
            if message.match(text) and issubclass(category, kind) and where.match(module) and number in (0, line):
                return str(action)
        if not self.reset:
            raise Break("SB006", f"{RECORDED}, where a filter of outside decides which")
        return str(vm.heap.scope(warnings.__dict__).read("defaultaction"))

    def warned(self, vm: VM, message: object, category: Any, frame: Any, outward: int) -> None:
        """Record a warning of the program, raised in a frame of the user."""
        at: Any = vm.frame
        while at is not None and (at.code.co_filename != frame.filename or at.line != frame.line):
            at = at.caller()
        globals_ = None if at is None or at.func is None else at.func.__globals__
        if outward or globals_ is None or vm.heap.scope(warnings.__dict__).overlay:
            raise Break("SB006", f"{RECORDED} that point outside the captured code")
        if type(message) is not str or not is_a(category, type) or id(category) in vm.fresh or \
                any(vars(base).keys() & {"__init__", "__new__", "__str__"} for base in category.__mro__
                    if base.__module__ != "builtins"):
            raise Break("SB006", f"{RECORDED} whose message is no plain text of a plain class")
        name = globals_.get("__name__") or "<string>"
        action = self.action_for(vm, message, category, name, frame.line)
        key = (id(globals_), message, category, frame.line)
        if action == "error":
            raise Raised(vm.call_sync(category, (message,)))
        if action not in ("always", "ignore", "default"):
            raise Break("SB006", f"{RECORDED} of the action {action!r}")
        if action == "always" or action == "default" and key not in self.seen:
            self.seen.add(key)
            instance = vm.call_sync(category, (message,))
            self.log.append(vm.call_sync(warnings.WarningMessage,
                                         (instance, category, frame.filename, frame.line, None, None, None)))


def watch_list(vm: VM, log: list[Any]) -> None:
    """The program holds a list to which warnings go already: what operations say as they run will be in it."""
    recorder, heap = vm.recorder, vm.heap
    adopt = heap.adopters[list]

    def listen() -> None:
        recorder.services.listening = listening
        recorder.propagation.enabled = False  # a remembered operation says nothing

    def met() -> None:
        if recorder.scope.calls:
            raise Break("SB015", "a list that gets what operations say as they run")
        listen()

    if not recorder.backend.in_order:
        listen()  # the operations of a compiler say other things

    def adopt_list(value: object, source: Source) -> Any:
        if value is log:
            met()
        return adopt(value, source)

    heap.adopters[list] = adopt_list
    if id(log) in heap.by_original:
        met()


def is_silent(target: object, name: str, args: tuple[Any, ...]) -> bool:
    """By its name, in whatever spelling; x[...] with numbers and slices: a mask of bytes is warned of as it is used."""
    if name in _SILENT or name[:1] in ("i", "r") and name[1:] in _SILENT or target in _PROPERTIES:
        return True
    if target not in (operator.getitem, torch.Tensor.__getitem__):
        return False
    parts = args[1] if type(args[1]) is tuple else (args[1],)
    return all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts)


@contextlib.contextmanager
def listening(target: Any, args: tuple[Any, ...] | None, kwargs: dict[str, Any]) -> Iterator[None]:
    """While an operation is done on fakes, or (no `args`) a property is read, under a list that gets what it says."""
    name = getattr(target, "__name__", target)
    if args is not None and ("out" in kwargs or not is_silent(target, name.strip("_"), args)):
        raise Break("SB006", f"{RECORDED}, beside {name}, which may warn as it runs")
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
    finally:
        torch.set_warn_always(before)
    if said:
        raise Break("SB006", f"{RECORDED}, beside {name}, which warns: {said[0].message}".splitlines()[0])


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
    action = values.pop("action", None)
    if action not in _QUIET and not (action == "error" and vm.warnings.recordings):  # the trace finds what it raises
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
        raise _refused("a filter makes exceptions of warnings")
    if callee is not warnings.resetwarnings and not _is_quiet(vm, args, kwargs):
        raise _refused("to others than plain ones that raise nothing")
    vm.heap.guard_call(warnings_can_raise, False)
    vm.warnings.changed = True
    if vm.warnings.recordings:
        vm.warnings.recordings[-1].change(callee, args, kwargs)
    note(vm, PlainCall(callee, args, kwargs), False, warnings)


@rule(_OPEN)
def _enter(vm: VM, self: object) -> Any:
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
def _exit(vm: VM, self: object, *exc_info: object) -> None:
    manager = _plain_manager(vm, self)
    if vm.warnings.recordings:
        end_recording(vm, manager)
    if vm.warnings.managers.pop(id(manager), None) is None:
        tracker = vm.heap.by_standin.get(id(manager))
        if tracker is None or read_instance_dict(vm, manager, "_entered") is not True:
            raise _refused("a catch_warnings is left that was not entered")
        if saved_can_raise(tracker.original):
            raise _refused("a filter makes exceptions of warnings")
        vm.heap.guard_call(saved_can_raise, False, tracker.source)
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
    vm.heap.guard_call(warnings_can_raise, False)
    return manager


def saved_can_raise(manager: object) -> bool:
    """A pure reader for guards: whether the filters that a `catch_warnings` puts back make exceptions of warnings."""
    return any(entry[0] == "error" for entry in vars(manager).get("_filters", ()))
