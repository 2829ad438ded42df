"""Rules for print, warnings.warn and loggers.   print(x), log.info("%s", x)  ->  an effect, replayed after the graph"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.noted_effects import (
    Logged,
    Printed,
    frozen,
    joined,
    may_break,
    note,
    note_warning,
    pointed_at,
    text_of,
    told_natively,
    written_in_python,
)
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM


@rule(print, unread=True)
def _print(vm: VM, /, *values: Any, sep: Any = None, end: Any = None, file: Any = None, flush: Any = False) -> None:
    may_break(vm, "print()")
    if file is None:
        file = vm.heap.scope(sys.__dict__).read("stdout")
    sep, end = " " if sep is None else sep, "\n" if end is None else end
    if file is sys.stdout or file is sys.stderr:
        parts = [text_of(vm, value) for value in values]
        pieces = (*(piece for part in parts for piece in (sep, part)), end)[0 if not parts else 1:]
        watched = written_in_python(file)
        note(vm, Printed("stdout" if file is sys.stdout else "stderr", joined(list(pieces)),
                         pieces if watched else (), type(flush) is bool and flush), watched)
    elif file is not None:
        for number, value in enumerate(values):
            if number:
                _call_method(vm, file, "write", sep)
            _call_method(vm, file, "write", text_of(vm, value))
        _call_method(vm, file, "write", end)
        if type(flush) is bool and flush:
            _call_method(vm, file, "flush")


def _call_method(vm: VM, value: Any, name: str, *args: Any) -> None:
    vm.call_sync(vm.sync(lambda: vm.load_attr(value, name)), args)


@rule(warnings.warn)
def _warn(vm: VM, message: Any, category: Any = None, stacklevel: Any = 1, source: Any = None, **options: Any) -> None:
    may_break(vm, "warnings.warn", warnings)
    note_warning(vm, message, type(message) if is_a(message, Warning) else category or UserWarning, stacklevel, source)


@rule(*[getattr(logging.Logger, name) for name in ("debug", "info", "warning", "error", "critical", "log")])
def _log(vm: VM, callee: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    name, rest = callee.__name__, list(args)
    level = None if name == "log" else getattr(logging, name.upper())
    may_break(vm, f"logging.Logger.{name}", logging)
    extra = kwargs.get("extra")
    asked = any(kwargs.get(key) is not None and kwargs[key] is not False for key in ("exc_info", "stack_info"))
    if asked or kwargs.keys() - _LOG_KEYWORDS or len(rest) < 1 + (level is None):
        given = ", ".join(kwargs) or "too few arguments"
        raise told_natively("SB015", f"logging.Logger.{name} with {given}", logging)
    original = vm.heap.original_of(self)
    number = rest.pop(0) if level is None else level
    try:
        rest = [frozen(vm, value, f"logging.Logger.{name}") for value in rest]
        extra = None if extra is None else frozen(vm, extra, f"logging.Logger.{name}")
    except Break as stop:
        raise told_natively(stop.code, stop.detail, logging) from None
    if type(extra) is dict and extra.keys() & _RECORD_NAMES:
        raise Raised(KeyError(f"Attempt to overwrite {next(iter(extra.keys() & _RECORD_NAMES))!r} in LogRecord"))
    frame, outward = pointed_at(vm, kwargs.get("stacklevel", 1), logging)
    note(vm, Logged(original, number, rest[0], tuple(rest[1:]), frame.filename, frame.line,
                    frame.function.rpartition(".")[2], outward, extra, kwargs.get("exc_info")),
         handled_in_python(original), logging)


_LOG_KEYWORDS = frozenset({"extra", "stacklevel", "exc_info", "stack_info"})
_RECORD_NAMES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def handled_in_python(logger: Any) -> bool:
    """Whether a message reaches handlers, filters or streams that are the user's own code."""
    while logger is not None:
        for handler in logger.handlers:
            stream = getattr(handler, "stream", None)
            if not type(handler).__module__.startswith("logging") or handler.filters \
                    or stream is not None and written_in_python(stream):
                return True
        if logger.filters:
            return True
        logger = logger.parent if logger.propagate else None
    return False


@suspending_rule(logging.Logger.isEnabledFor)
def _is_enabled_for(vm: VM, cont: Any, self: Any, level: Any) -> None:
    logger = vm.heap.original_of(self)
    if logger.manager.loggerDict.get(logger.name) is not logger and logger is not logging.root:
        raise Break("SB018", "isEnabledFor of a logger that no manager knows, whose cached answers may be old")
    vm.call(_enabled, (self, level), {}, cont)


def _enabled(self: Any, level: int) -> bool:
    """Logger.isEnabledFor without its lock and its cache; interpreted."""
    if self.disabled or self.manager.disable >= level:
        return False
    return level >= self.getEffectiveLevel()
