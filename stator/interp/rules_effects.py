"""Rules for functions whose point is a side effect: they are noted, and replayed in order after the graph."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.interp.calls import rule
from stator.kinds import is_a
from stator.shapes.values import is_unbacked


@dataclass(frozen=True)
class Printed:
    """Text written to a standard stream."""

    stream: str  # "stdout" or "stderr"
    text: str


@dataclass(frozen=True)
class Warned:
    """A warning, with the place of the program it points at."""

    message: Any
    category: Any
    filename: str
    line: int
    module: str


@dataclass(frozen=True)
class Logged:
    """A call of a logger's method with constant arguments."""

    logger: Any
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def refuse_tensors(values: Any, what: str) -> None:
    for value in values:
        if is_unbacked(value):
            raise Break("SB003", f"a number that only the graph knows in {what}")
        if type(value) is FakeTensor or is_a(value, (list, tuple)) and any(type(v) is FakeTensor for v in value):
            raise Break("SB003", f"a tensor's values in {what}")


@rule(print)
def _print(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    options = dict(kwargs)
    file = options.pop("file", None)
    options.pop("flush", None)
    separator, end = options.pop("sep", None), options.pop("end", None)
    if options:
        return vm.give(vm.native_unhooked(print, (), kwargs), cont)
    refuse_tensors(args, "print()")
    if file is None:
        file = vm.heap.scope(sys.__dict__).read("stdout")
    parts = [vm.call_sync(str, (value,)) for value in args]
    text = (" " if separator is None else separator).join(parts) + ("\n" if end is None else end)
    if file is sys.stdout or file is sys.stderr:
        vm.effects.append(Printed("stdout" if file is sys.stdout else "stderr", text))
    elif file is not None:
        out: list[Any] = []
        vm.sync(lambda: vm.load_attr(file, "write"), out)
        vm.call_sync(out[0], (text,))
    vm.give(None, cont)


@rule(warnings.warn)
def _warn(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    values = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False))
    values.update(kwargs)
    message = values["message"]
    category = values.get("category") or UserWarning
    if is_a(message, Warning):
        category = type(message)
    stack = [frame for frame in vm.stack()]
    level = values.get("stacklevel", 1)
    frame = stack[-level] if level <= len(stack) else stack[0]
    vm.effects.append(Warned(message, category, frame.filename, frame.line, frame.filename))
    vm.give(None, cont)


def _log_rule(name: str) -> Any:
    def note(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        logger, *rest = args
        if kwargs or any(not is_a(value, (str, int, float, type(None), type)) for value in rest):
            raise Break("SB015", f"logging.Logger.{name} with arguments that are not constants")
        vm.effects.append(Logged(vm.heap.original_of(logger), name, tuple(rest), dict(kwargs)))
        vm.give(None, cont)
    return note


for _name in ("debug", "info", "warning", "error", "critical", "warn", "log"):
    rule(getattr(logging.Logger, _name))(_log_rule(_name))


# ---------------------------------------------------------------------- re: functions around an inner cache

def _native_rule(function: Any) -> Any:
    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        """`re` keeps a cache of compiled patterns, which nobody can observe."""
        vm.heap.expose_deep(args)
        vm.give(vm.native(function, args, kwargs), cont)
    return run


for _function in (re.compile, re.escape, re.match, re.fullmatch, re.search, re.split, re.findall, re.finditer):
    rule(_function)(_native_rule(_function))
