"""Effects that the residual replays.   print(x), warnings.warn(m)  ->  a record with the text, the values and the place

In: output of the program: text, warnings, log messages.  Out: effects in their order, noted once for the residual; a
break where code of the user's would see that they come late.
"""

from __future__ import annotations

import types
import warnings
from dataclasses import dataclass
from typing import Any

import torch

from stator.breaks import Break
from stator.graph.state.quiet_logging import warnings_can_raise
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.heap.outside_changes import anything_changed
from stator.interp.services import VM
from stator.interp.state.mechanisms import has_changes
from stator.source import CallOf, Pinned

_SHOW_WARNING, _SHOW_MESSAGE = getattr(warnings, "_showwarning_orig"), getattr(warnings, "_showwarnmsg_impl")


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


def pointed_at(vm: VM, level: int, module: torch.nn.Module) -> tuple[Any, int]:
    """The frame that a stacklevel means, and how many calls outside the trace it is."""
    stack = [frame for frame in vm.stack() if frame.filename != module.__file__]
    level = max(level, 1)
    return (stack[-level], 0) if level <= len(stack) else (stack[0], level - len(stack))


def note(vm: VM, effect: object, watched: bool, module: torch.nn.Module | None = None) -> None:
    """Keep an effect for replay.  `watched`: code of the user's runs then, which can see what was changed before it.

    Effects noted before the first change are replayed before the changes; after one, the call breaks.
    """
    changed = has_changes(vm) or anything_changed(vm.heap)
    if not changed:  # also of what decides where it goes (a stream, a level), which may change later
        vm.effects.early = len(vm.effects.noted) + 1
    if watched:
        if changed:
            cause = "output through the user's own code, which can see what was changed before"
            raise told_natively("SB015", cause, module)
        if vm.residual.draws:
            raise told_natively("SB015", "output through the user's own code, after a random number was drawn", module)
        vm.effects.watched = True
        if vm.locks.used:
            raise Break("SB018", "output through the user's own code, in a call that takes a lock")
    vm.append_output(effect)


def written_in_python(stream: object) -> bool:
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


def may_break(vm: VM, what: str, module: torch.nn.Module | None = None) -> None:
    """options={"print": "break"}: nothing is replayed later."""
    if vm.policy.effects_break:
        raise told_natively("SB015", f"{what}, and the option 'print' says 'break'", module)


def told_natively(code: str, cause: str, module: torch.nn.Module) -> Break:
    """A break at a function that looks for its caller, outside its own module."""
    return Break(code, cause) if module is None else Break(code, cause, asks_caller=True, leave=module.__file__)


def note_warning(vm: VM, message: object, category: object, level: int = 1, source: object = None,
                 kind: type[Warned] = Warned) -> None:
    """Keep a warning of the program for replay, from the frame that a stacklevel means."""
    if warnings_can_raise():
        raise told_natively("SB013", "a warning while a filter turns warnings into errors", warnings)
    vm.heap.guard(CallOf(Pinned(warnings_can_raise)), Kind.FRESH_CALL, False)
    frame, outward = pointed_at(vm, level, warnings)
    if vm.warnings.recordings:
        if source is not None:
            raise Break("SB006", "a warning with a source, while warnings are recorded")
        vm.warnings.recordings[-1].warned(vm, message, category, frame, outward)
        return note(vm, Warned(message, category, frame.filename, frame.line, outward), False, warnings)
    shown_by = getattr(warnings, "_showwarnmsg_impl")
    if list_of_warnings(vm) is not None:
        raise told_natively("SB015", "a warning that goes to a list which the program can read", warnings)
    watched = warnings.showwarning is not _SHOW_WARNING \
        or type(shown_by) is types.FunctionType and shown_by is not _SHOW_MESSAGE
    note(vm, kind(message, category, frame.filename, frame.line, outward), watched, warnings)


def list_of_warnings(vm: VM) -> list[Any] | None:
    """The list to which warnings go by now, where the program can read it."""
    shown_by = getattr(warnings, "_showwarnmsg_impl")
    log = shown_by.__self__ if type(shown_by) is types.BuiltinFunctionType else None
    return log if type(log) is list and _is_held(vm, log) else None


def _is_held(vm: VM, log: object) -> bool:
    """Whether a list of the user's, to which warnings are appended, was met or is in a variable of the program's."""
    if id(log) in vm.heap.by_original:
        return True
    frame = vm.frame
    while frame is not None:
        if any(type(item) is Box and item.raw is log for item in (*frame.locals, *frame.stack)):
            return True
        frame = frame.caller()
    return False
