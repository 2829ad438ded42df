"""Rules for functions whose point is a side effect: they are noted, and replayed in order after the graph."""

from __future__ import annotations

import logging
import re
import sys
import types
import warnings
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.graph.state.quiet_logging import warnings_can_raise
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.heap.outside_changes import anything_changed
from stator.host.value_kinds import is_a
from stator.interp.deferred_values import frozen, joined, text_of
from stator.interp.effects_order import changed_beside_trackers
from stator.interp.frame import Raised
from stator.interp.rule_registry import rule
from stator.shapes.symbolic_values import DeferredText, unread
from stator.source import CallOf, Pinned


@dataclass(frozen=True)
class Printed:
    """Text written to a standard stream."""

    stream: str  # "stdout" or "stderr"
    text: Any  # a str, or a DeferredText
    pieces: tuple[Any, ...] = ()  # as print() writes them, where the stream's write() is Python code that can tell
    flush: bool = False


@dataclass(frozen=True)
class Warned:
    """A warning, with the place of the program it points at."""

    message: Any
    category: Any
    filename: str
    line: int
    outward: int  # how many calls outside the compiled function the place is; 0: it is the one above


@dataclass(frozen=True)
class Converted(Warned):
    """torch's warning of a tensor with requires_grad=True that became a float; torch says whether it is due."""


@dataclass(frozen=True)
class Logged:
    """A message to a logger, its arguments as they are now, from a place of the program."""

    logger: Any
    level: int
    message: Any
    args: tuple[Any, ...]
    filename: str
    line: int
    function: str
    outward: int = 0  # as above
    extra: Any = None
    exc_info: bool | None = None  # None or False, which a handler can tell apart


def pointed_at(vm: Any, level: int, module: Any) -> tuple[Any, int]:
    """The frame that a stacklevel means, and how many calls outside the trace it is."""
    stack = [frame for frame in vm.stack() if frame.filename != module.__file__]
    level = max(level, 1)
    return (stack[-level], 0) if level <= len(stack) else (stack[0], level - len(stack))


def note(vm: Any, effect: Any, watched: bool, module: Any = None) -> None:
    """Keep an effect for replay.  `watched`: code of the user's runs then, which can see what was changed before it.

    Effects noted before the first change are replayed before the changes; after one, the call breaks.
    """
    changed = changed_beside_trackers(vm) or anything_changed(vm.heap)
    if not changed:  # also of what decides where it goes (a stream, a level), which may change later
        vm.early_effects = len(vm.effects) + 1
    if watched:
        if changed:
            cause = "output through the user's own code, which can see what was changed before"
            raise told_natively("SB015", cause, module)
        if vm.draws:
            raise told_natively("SB015", "output through the user's own code, after a random number was drawn", module)
        vm.watched_effects = True
        if vm.locks:
            raise Break("SB018", "output through the user's own code, in a call that takes a lock")
    vm.append_output(effect)


def written_in_python(stream: Any) -> bool:
    """Whether a stream's write() is Python code."""
    for base in type.__dict__["__mro__"].__get__(type(stream)):
        if "write" in base.__dict__:
            return type(base.__dict__["write"]) is types.FunctionType
    return True


@dataclass(frozen=True)
class PolicySet:
    """The segment leaves this thread under another error_on_graph_break policy than it found."""

    value: bool | None
    setter: Any


def may_break(vm: Any, what: str, module: Any = None) -> None:
    """options={"print": "break"}: nothing is replayed later."""
    if vm.effects_break:
        raise told_natively("SB015", f"{what}, and the option 'print' says 'break'", module)


def told_natively(code: str, cause: str, module: Any) -> Break:
    """A break at a function that looks for its caller, outside its own module."""
    return Break(code, cause) if module is None else Break(code, cause, asks_caller=True, leave=module.__file__)


@rule(print)
def _print(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    options = dict(kwargs)
    file = options.pop("file", None)
    flush = options.pop("flush", False)
    separator, end = options.pop("sep", None), options.pop("end", None)
    if options:
        return vm.give(vm.native_unhooked(print, (), kwargs), cont)
    may_break(vm, "print()")
    if file is None:
        file = vm.heap.scope(sys.__dict__).read("stdout")
    separator, end = " " if separator is None else separator, "\n" if end is None else end
    if file is sys.stdout or file is sys.stderr:
        parts = [text_of(vm, value) for value in args]
        pieces = (*(piece for part in parts for piece in (separator, part)), end)[0 if not parts else 1:]
        watched = written_in_python(file)
        note(vm, Printed("stdout" if file is sys.stdout else "stderr", joined(list(pieces)),
                         pieces if watched else (), type(flush) is bool and flush), watched)
    elif file is not None:
        for number, value in enumerate(args):
            if number:
                _call_method(vm, file, "write", separator)
            _call_method(vm, file, "write", text_of(vm, value))
        _call_method(vm, file, "write", end)
        if type(flush) is bool and flush:
            _call_method(vm, file, "flush")
    vm.give(None, cont)


def _call_method(vm: Any, value: Any, name: str, *args: Any) -> None:
    out: list[Any] = []
    vm.sync(lambda: vm.load_attr(value, name), out)
    vm.call_sync(out[0], args)


@rule(warnings.warn)
def _warn(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    may_break(vm, "warnings.warn", warnings)
    values = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False))
    values.update(kwargs)
    message = values["message"]
    category = values.get("category") or UserWarning
    if is_a(message, Warning):
        category = type(message)
    note_warning(vm, message, category, values.get("stacklevel", 1), values.get("source"))
    vm.give(None, cont)


def note_warning(vm: Any, message: Any, category: Any, level: int = 1, source: Any = None,
                 kind: type[Warned] = Warned) -> None:
    """Keep a warning of the program for replay, from the frame that a stacklevel means."""
    if warnings_can_raise():
        raise told_natively("SB013", "a warning while a filter turns warnings into errors", warnings)
    vm.heap.guard(CallOf(Pinned(warnings_can_raise)), Kind.FRESH_CALL, False)
    frame, outward = pointed_at(vm, level, warnings)
    if vm.recordings:
        if source is not None:
            raise Break("SB006", "a warning with a source, while warnings are recorded")
        vm.recordings[-1].warned(vm, message, category, frame, outward)
        return note(vm, Warned(message, category, frame.filename, frame.line, outward), False, warnings)
    shown_by = getattr(warnings, "_showwarnmsg_impl")
    if list_of_warnings(vm) is not None:
        raise told_natively("SB015", "a warning that goes to a list which the program can read", warnings)
    watched = warnings.showwarning is not _SHOW_WARNING \
        or type(shown_by) is types.FunctionType and shown_by is not _SHOW_MESSAGE
    note(vm, kind(message, category, frame.filename, frame.line, outward), watched, warnings)


def list_of_warnings(vm: Any) -> list[Any] | None:
    """The list to which warnings go by now, where the program can read it."""
    shown_by = getattr(warnings, "_showwarnmsg_impl")
    log = shown_by.__self__ if type(shown_by) is types.BuiltinFunctionType else None
    return log if type(log) is list and _is_held(vm, log) else None


def _is_held(vm: Any, log: Any) -> bool:
    """Whether a list of the user's, to which warnings are appended, was met or is in a variable of the program's."""
    if id(log) in vm.heap.by_original:
        return True
    frame = vm.frame
    while frame is not None:
        if any(type(item) is Box and item.raw is log for item in (*frame.locals, *frame.stack)):
            return True
        frame = frame.caller()
    return False


_SHOW_WARNING, _SHOW_MESSAGE = getattr(warnings, "_showwarning_orig"), getattr(warnings, "_showwarnmsg_impl")


def _log_rule(name: str, level: int | None) -> Any:
    def log(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        logger, *rest = args
        may_break(vm, f"logging.Logger.{name}", logging)
        extra = kwargs.get("extra")
        asked = any(kwargs.get(key) is not None and kwargs[key] is not False for key in ("exc_info", "stack_info"))
        if asked or kwargs.keys() - _LOG_KEYWORDS or len(rest) < 1 + (level is None):
            given = ", ".join(kwargs) or "too few arguments"
            raise told_natively("SB015", f"logging.Logger.{name} with {given}", logging)
        original = vm.heap.original_of(logger)
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
        vm.give(None, cont)
    return log


_LOG_KEYWORDS = frozenset({"extra", "stacklevel", "exc_info", "stack_info"})
_RECORD_NAMES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


for _name in ("debug", "info", "warning", "error", "critical"):
    rule(getattr(logging.Logger, _name))(_log_rule(_name, getattr(logging, _name.upper())))
rule(logging.Logger.log)(_log_rule("log", None))


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


@rule(logging.Logger.isEnabledFor)
def _is_enabled_for(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    logger = vm.heap.original_of(args[0])
    if logger.manager.loggerDict.get(logger.name) is not logger and logger is not logging.root:
        raise Break("SB018", "isEnabledFor of a logger that no manager knows, whose cached answers may be old")
    vm.call(_enabled, args, kwargs, cont)


def _enabled(self: Any, level: int) -> bool:
    """Logger.isEnabledFor without its lock and its cache; interpreted."""
    if self.disabled or self.manager.disable >= level:
        return False
    return level >= self.getEffectiveLevel()


# ---------------------------------------------------------------------- re: functions around an inner cache

def _native_rule(function: Any) -> Any:
    def run(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        """`re` keeps a cache of compiled patterns, which nobody can observe."""
        for value in (*args, *kwargs.values()):
            if type(value) is DeferredText:
                raise unread(value)
        vm.heap.expose_deep(args)
        vm.give(vm.native_unhooked(function, args, kwargs), cont)
    return run


def _substitute_rule(method: str) -> Any:
    def substitute(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        """The pattern is compiled natively; the replacement may be a function of the program."""
        values = {**dict(zip(("pattern", "repl", "string", "count", "flags"), args, strict=False)), **kwargs}
        pattern = vm.native_unhooked(re.compile, (values.pop("pattern"), values.pop("flags", 0)))
        vm.call(getattr(pattern, method), (), values, cont)
    return substitute


rule(re.sub)(_substitute_rule("sub"))
rule(re.subn)(_substitute_rule("subn"))


for _of_re in (re.compile, re.escape, re.match, re.fullmatch, re.search, re.split, re.findall, re.finditer):
    rule(_of_re)(_native_rule(_of_re))
