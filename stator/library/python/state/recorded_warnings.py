"""What `catch_warnings(record=True)` records.   warnings.warn("old") inside it  ->  an entry of the program's list

In: the filters that the program sets inside, and its warnings.  Out: WarningMessages, made by the trace, in a list that
is the program's own; the filters and the warnings are replayed after the graph as well, for what they leave in the
registries of modules.  Which warnings are recorded is known where a filter of the program's own decides.  Operations
that may warn as they run break; so does whatever stops the trace before the manager is left.
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

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.vm import VM
from stator.source import Source
from stator.strategy import Strategy

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


class Recording:
    """One manager that is entered: its list, and the filters set since, the one that is asked first at the front."""

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

    def warned(self, vm: VM, message: Any, category: Any, frame: Any, outward: int) -> None:
        """A warning of the program's."""
        globals_ = frame_globals(vm, frame)
        if outward or globals_ is None or vm.heap.scope(warnings.__dict__).overlay:
            raise Break("SB006", f"{RECORDED} that point outside the captured code")
        if type(message) is not str or not is_a(category, type) or id(category) in vm.fresh or \
                any(vars(base).keys() & {"__init__", "__new__", "__str__"} for base in category.__mro__
                    if base.__module__ != "builtins"):
            raise Break("SB006", f"{RECORDED} whose message is no plain text of a plain class")
        name = globals_.get("__name__") or "<string>"
        action = self.action_for(vm, message, category, name, frame.line)
        key = (id(globals_), message, category, frame.line)
        if action not in ("always", "ignore", "default"):
            raise Break("SB006", f"{RECORDED} of the action {action!r}")
        if action == "always" or action == "default" and key not in self.seen:
            self.seen.add(key)
            instance = vm.call_sync(category, (message,))
            self.log.append(vm.call_sync(warnings.WarningMessage,
                                         (instance, category, frame.filename, frame.line, None, None, None)))


def frame_globals(vm: VM, place: Any) -> dict[str, Any] | None:
    """The namespace of the function of the trace that stands at a place of the user's."""
    frame = vm.frame
    while frame is not None:
        if frame.code.co_filename == place.filename and frame.line == place.line:
            return frame.func.__globals__ if frame.func is not None else None
        frame = frame.caller()
    return None


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
