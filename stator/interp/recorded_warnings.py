"""Warnings that the trace records or raises.   with catch_warnings(record=True) as log: warn("m")  ->  log, filled

In: filters that the program sets under a manager, and its warnings.  Out: WarningMessages in the list of the manager,
or the exception that a filter makes of the warning.  Where a filter of outside decides, the trace breaks.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stator.breaks import Break, Strategy
from stator.graph.state.quiet_logging import muted
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.services import VM
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
    dropout embedding size dim numel stride storage_offset is_contiguous set_grad_enabled""".split())
_PROPERTIES = frozenset(name for name, each in inspect.getmembers_static(torch.Tensor)
                        if type(each) in (types.GetSetDescriptorType, property))  # which only look


class Recording:
    """One entered manager: its list, and the filters set since, the first to be tried in front.

    Without a list (None) warnings are shown, and the manager has a filter that makes exceptions of them.
    """

    def __init__(self, manager: object, outer: Recording | None, propagates: bool, log: list[object] | None) -> None:
        self.manager, self.propagates, self.log = manager, propagates, log
        self.filters: list[tuple[Any, ...]] = list(outer.filters) if outer is not None else []
        self.reset: bool = outer is not None and outer.reset  # whether there are no filters but these
        self.seen: set[tuple[object, ...]] = set()  # what registries hold since the filters were last changed

    def change(self, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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
        chosen = ""
        for action, message, kind, where, number in self.filters:
            if message.match(text) and issubclass(category, kind) and where.match(module) and number in (0, line):
                chosen = str(action)
                break
        if not chosen and not self.reset:
            raise Break("SB006", f"{RECORDED}, where a filter of outside decides which")
        chosen = chosen or str(vm.heap.scope(warnings.__dict__).read("defaultaction"))
        if chosen not in ("always", "ignore", "default", "error"):
            raise Break("SB006", f"{RECORDED} of the action {chosen!r}")
        return chosen

    def warned(self, vm: VM, message: object, category: Any, frame: Any, outward: int) -> bool:
        """Record a warning of the program, raised in a frame of the user; False: it is shown, or ignored."""
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
        if action == "error":
            raise Raised(vm.call_sync(category, (message,)))
        key = (id(globals_), message, category, frame.line)
        if action == "always" or action == "default" and key not in self.seen:
            self.seen.add(key)
            self.append(vm, message, category, frame.filename, frame.line)
        return self.log is not None

    def append(self, vm: VM, message: str, category: type, filename: str, line: int) -> None:
        if self.log is not None:
            instance = vm.call_sync(category, (message,))
            self.log.append(vm.call_sync(warnings.WarningMessage,
                                         (instance, category, filename, line, None, None, None)))

    def compiler_warned(self, vm: VM, message: str, category: type, filename: str, line: int) -> str:
        """Record a warning of the compiler, which no registry remembers; the action that it meets."""
        module = filename.removesuffix(".py") or "<unknown>"
        action = self.action_for(vm, message, category, module, line)
        if action in ("always", "default"):
            self.append(vm, message, category, filename, line)
        return action


def refused(what: str) -> Break:
    return Break("SB006", f"the filters of warnings are changed: {what}")


def begin_recording(vm: VM, manager: object, log: list[object] | None) -> None:
    recorder = vm.recorder
    if RECORDED in vm.turned_off:
        raise refused(f"by catch_warnings(record=True), and under it: {vm.policy.why_off.get(RECORDED, '')}")
    if recorder.scope.enclosing is not None or recorder.wrappers.behind or vm.modes.active \
            or id(manager) in vm.heap.by_standin:
        raise refused("by catch_warnings(record=True)")
    outer = vm.warnings.recordings[-1] if vm.warnings.recordings else None
    vm.warnings.recordings.append(Recording(manager, outer, recorder.propagation.enabled, log))
    recorder.propagation.enabled = False  # a remembered operation warns of nothing
    recorder.services.listening = listening


def end_recording(vm: VM, manager: object) -> None:
    recording = vm.warnings.recordings[-1]
    if recording.manager is not manager:
        raise refused("by a catch_warnings(record=True) that is not the last one entered")
    vm.warnings.recordings.pop()
    if vm.warnings.recordings:
        vm.warnings.recordings[-1].seen.clear()
    else:
        vm.recorder.services.listening = muted
        vm.recorder.propagation.enabled = recording.propagates


def watch_list(vm: VM, log: list[Any]) -> None:
    """The program holds a list to which warnings go already: warnings of operations as they run will be in it."""
    recorder, heap = vm.recorder, vm.heap
    adopt = heap.adopters[list]

    def listen() -> None:
        recorder.services.listening = listening
        recorder.propagation.enabled = False  # a remembered operation warns of nothing

    def met() -> None:
        if recorder.scope.calls:
            raise Break("SB015", "a list that gets what operations say as they run")
        listen()

    if not recorder.backend.in_order:
        listen()  # the operations of a compiler give other warnings

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
    """While an operation is done on fakes, or (no `args`) a property is read, under a list that gets its warnings."""
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
