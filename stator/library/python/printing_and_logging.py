"""Rules for output: print, loggers, streams.   print(x), log.info("%s", x)  ->  an effect, replayed after the graph

Writing to an open stream from outside is an effect, in order with print and log records.  That it is open, writable and
takes the text is guarded.  Reading from one moves it: that breaks, at that very call.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp import noted_effects as noted
from stator.interp.frame import Continuation, Raised
from stator.interp.lookup import find
from stator.interp.noted_effects import frozen, joined, text_of
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.shapes.symbolic_values import DeferredText, unread
from stator.source import Pinned, Source

_LOG_KEYWORDS = frozenset({"extra", "stacklevel", "exc_info", "stack_info"})
_RECORD_NAMES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_PLAIN = {list, type(None), type, *(each for each in vars(logging).values() if isinstance(each, type))}
_TEXT = (io.StringIO, io.TextIOWrapper)
_BYTES = (io.BytesIO, io.BufferedWriter)
_RAW = (io.FileIO, io.BytesIO, io.BufferedWriter)


@rule(print, unread=True)
def _print(vm: VM, /, *values: Any, sep: Any = None, end: Any = None, file: Any = None, flush: Any = False) -> None:
    noted.may_break(vm, "print()")
    if file is None:
        file = vm.heap.scope(sys.__dict__).read("stdout")
    sep, end = " " if sep is None else sep, "\n" if end is None else end
    if file is not None and (file is sys.stdout or file is sys.stderr):
        parts = [text_of(vm, value) for value in values]
        pieces = (*(piece for part in parts for piece in (sep, part)), end)[0 if not parts else 1:]
        watched = noted.written_in_python(file)
        noted.note(vm, noted.Printed("stdout" if file is sys.stdout else "stderr", joined(list(pieces)),
                         pieces if watched else (), type(flush) is bool and flush), watched and (file,))
    elif file is not None:
        for number, value in enumerate(values):
            if number:
                _call_method(vm, file, "write", sep)
            _call_method(vm, file, "write", text_of(vm, value))
        _call_method(vm, file, "write", end)
        if type(flush) is bool and flush:
            _call_method(vm, file, "flush")


def _call_method(vm: VM, value: object, name: str, *args: object) -> None:
    vm.call_sync(vm.sync(lambda: vm.load_attr(value, name)), args)


@rule(warnings.warn)
def _warn(vm: VM, message: Any, category: Any = None, stacklevel: Any = 1, source: Any = None, **options: Any) -> None:
    noted.may_break(vm, "warnings.warn", warnings)
    category = type(message) if is_a(message, Warning) else category or UserWarning
    noted.note_warning(vm, message, category, stacklevel, source)


@rule(*[getattr(logging.Logger, name) for name in ("debug", "info", "warning", "error", "critical", "log")])
def _log(vm: VM, callee: Any, self: object, *args: Any, **kwargs: Any) -> None:
    name, rest = callee.__name__, list(args)
    level = None if name == "log" else getattr(logging, name.upper())
    noted.may_break(vm, f"logging.Logger.{name}", logging)
    extra = kwargs.get("extra")
    asked = any(kwargs.get(key) is not None and kwargs[key] is not False for key in ("exc_info", "stack_info"))
    if asked or kwargs.keys() - _LOG_KEYWORDS or len(rest) < 1 + (level is None):
        given = ", ".join(kwargs) or "too few arguments"
        raise noted.told_natively("SB015", f"logging.Logger.{name} with {given}", logging)
    original = vm.heap.original_of(self)
    number = rest.pop(0) if level is None else level
    try:
        rest = [frozen(vm, value, f"logging.Logger.{name}") for value in rest]
        extra = None if extra is None else frozen(vm, extra, f"logging.Logger.{name}")
    except Break as stop:
        raise noted.told_natively(stop.code, stop.detail, logging) from None
    if type(extra) is dict and extra.keys() & _RECORD_NAMES:
        raise Raised(KeyError(f"Attempt to overwrite {next(iter(extra.keys() & _RECORD_NAMES))!r} in LogRecord"))
    frame, outward = noted.pointed_at(vm, kwargs.get("stacklevel", 1), logging)
    handlers = handled_in_python(original)
    if find(vm, type(original), "_log") is not logging.Logger._log:
        raise noted.told_natively("SB015", f"logging.Logger.{name} of a logger with a _log() of its own", logging)
    if noted.may_change(vm, vars(logging), *deciding(original)):
        raise noted.told_natively("SB015", "a log record, where the call changes how output is shown", logging)
    vm.heap.guard_call(is_handled_by, True, Pinned(original), *map(Pinned, handlers))
    noted.note(vm, noted.Logged(original, number, rest[0], tuple(rest[1:]), frame.filename, frame.line,
                    frame.function.rpartition(".")[2], outward, extra, kwargs.get("exc_info")),
         handlers, logging)


def handled_in_python(logger: logging.Logger) -> tuple[object, ...]:
    """Loggers, handlers, formatters, filters and streams that a message reaches and that are the user's own code."""
    found = deciding(logger)
    streams = [stream for each in found if (stream := getattr(each, "stream", None)) is not None]
    return (*[each for each in found if type(each) not in _PLAIN],
            *[stream for stream in streams if noted.written_in_python(stream)])


def deciding(logger: logging.Logger) -> list[object]:
    """Objects that decide where a message goes, and as which text."""
    reached: logging.Logger | None = logger
    found: list[object] = [logging.getLogRecordFactory(), logger.manager]
    while reached is not None:
        found += (reached, reached.filters, *reached.filters, reached.handlers)
        for handler in reached.handlers:
            found += (handler, handler.formatter, handler.filters, *handler.filters)
        reached = reached.parent if reached.propagate else None
    return found


def is_handled_by(logger: logging.Logger, *handlers: object) -> bool:
    """A pure reader for guards."""
    return list(map(id, handled_in_python(logger))) == list(map(id, handlers))


@suspending_rule(logging.Logger.isEnabledFor)
def _is_enabled_for(vm: VM, cont: Continuation | None, self: object, level: object) -> None:
    logger = vm.heap.original_of(self)
    if logger.manager.loggerDict.get(logger.name) is not logger and logger is not logging.root:
        raise Break("SB018", "isEnabledFor of a logger that no manager knows, whose cached answers may be old")
    vm.call(_enabled, (self, level), {}, cont)


def _enabled(self: Any, level: int) -> bool:
    """Logger.isEnabledFor without its lock and its cache; interpreted."""
    if self.disabled or self.manager.disable >= level:
        return False
    return level >= self.getEffectiveLevel()


@dataclass(frozen=True)
class Written:
    """Text or bytes written to an outside stream; None: the stream is flushed."""

    source: Source
    data: Any


def takes_data(stream: Any) -> Any:
    """A pure reader for guards: how a stream written in C down to the file takes data; None where it does not."""
    cls = type(stream)
    if cls not in _TEXT + _BYTES or stream.closed or not stream.writable():
        return None
    if cls is io.StringIO:
        return "str", "", ""
    if cls is io.BytesIO:
        return "bytes", "", ""
    inner = stream.buffer if cls is io.TextIOWrapper else stream.raw
    if type(inner) not in _RAW or type(inner) is io.BufferedWriter and type(inner.raw) is not io.FileIO:
        return None
    return ("str", stream.encoding, stream.errors) if cls is io.TextIOWrapper else ("bytes", "", "")


@rule(io.StringIO.write, io.TextIOWrapper.write, io.BytesIO.write, io.BufferedWriter.write)
def _write(vm: VM, callee: Any, stream: Any, data: Any, /) -> Any:
    """sys.stdout.write(text) is an effect like print; a stream made in the trace is simply written."""
    if vm.heap.tracker_of(stream) is None:
        if type(data) is DeferredText:
            raise unread(data, "text for a stream made inside")
        return vm.native_unhooked(callee, (stream, data))
    for name in ("stdout", "stderr"):
        if stream is vm.heap.scope(sys.__dict__).read(name) and type(data) is str:
            noted.note(vm, noted.Printed(name, data), noted.written_in_python(stream) and (stream,))
            return len(data)
    noted.may_break(vm, "write()")
    _note_write(vm, stream, data)
    return len(data)


def _note_write(vm: VM, stream: object, data: Any) -> None:
    source, takes = vm.heap.source_of(stream), takes_data(stream)
    fits = takes is not None and (type(data) is (bytes if takes[0] == "bytes" else str))
    if fits and takes[1]:
        try:
            data.encode(takes[1], takes[2])
        except UnicodeError:
            fits = False
    if not fits:
        raise Break("SB006", f"write to a {type(stream).__name__} from outside")
    vm.heap.guard_call(takes_data, takes, source)
    vm.append_output(Written(source, data))


@rule(io.TextIOWrapper.flush, io.BufferedWriter.flush, io._io._IOBase.flush)  # type: ignore[attr-defined]
def _flush(vm: VM, callee: Any, stream: Any, /) -> Any:
    if vm.heap.tracker_of(stream) is None:
        return vm.native_unhooked(callee, (stream,))
    source, takes = vm.heap.source_of(stream), takes_data(stream)
    if takes is None:
        raise Break("SB006", f"flush of a {type(stream).__name__} from outside")
    vm.heap.guard_call(takes_data, takes, source)
    vm.append_output(Written(source, None))
    return None
