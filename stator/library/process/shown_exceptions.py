"""Rules for hooks of sys and the environment.   sys.stderr = io.StringIO(); sys.__excepthook__(...)  ->  the text in it

In: an exception, while the program has put a stream of its own in the place of sys.stderr.  Out: the stream with the
text of the exception.  For a NameError CPython compares the names of its frame, of the globals and of builtins, which
are guarded; from 3.12 on also attributes of `self`, where the call breaks.

    breakpoint()                       ->  the hook that the program has set, or that $PYTHONBREAKPOINT names
    os.environ["NAME"] = "value"       ->  the mapping changes as any; putenv() is an effect
    traceback.format_exc()             ->  lines of source files, whose size and time are guarded
"""

from __future__ import annotations

import builtins
import importlib
import io
import linecache
import os
import posix
import sys
import tokenize
import types
import warnings

from stator.breaks import Break
from stator.guards.guard import MISSING
from stator.host.own_code import OWN_FOLDER
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.noted_effects import PlainCall, note
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.library.python.class_makers import caller_module
from stator.source import Pinned

_CHAIN = [vars(BaseException)[name].__get__ for name in ("__cause__", "__context__")]
_parts_of = vars(BaseExceptionGroup)["exceptions"].__get__


@rule(sys.__excepthook__)
def _show(vm: VM, exc_type: object, value: object, traceback: object, /) -> None:
    stream = vm.heap.scope(sys.__dict__).read("stderr")
    if type(stream) is not io.StringIO or vm.heap.tracker_of(stream) is not None:
        raise Break("SB015", "sys.__excepthook__: output to another stream than one of the call")
    todo: list[object] = [value]
    seen: set[int] = set()
    while todo:
        error = todo.pop()
        if id(error) in seen or not is_a(error, BaseException):
            continue
        seen.add(id(error))
        if type(error) in (NameError, UnboundLocalError) and vm.heap.tracker_of(error) is None:
            _guard_names(vm, error)  # type: ignore[arg-type]
        elif is_a(error, (NameError, ImportError, SyntaxError)) or vm.heap.tracker_of(error) is not None:
            raise Break("SB015", f"sys.__excepthook__ of a {type(error).__name__}, which reads frames or files")
        todo += [get(error) for get in _CHAIN]
        todo += _parts_of(error) if is_a(error, BaseExceptionGroup) else ()
    vm.heap.expose_deep(value)
    before = sys.stderr
    sys.stderr = stream
    try:
        vm.native(sys.__excepthook__, (exc_type, value, traceback))
    finally:
        sys.stderr = before


def names_in(namespace: dict[str, object]) -> str:
    """A pure reader for guards: the names that CPython may suggest."""
    return " ".join([name for name in namespace if type(name) is str])


def _guard_names(vm: VM, error: BaseException) -> None:
    """Guard the names with which CPython compares the one that was not found."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    frame = None if trace is None else trace.tb_frame
    if frame is None or "self" in frame.f_code.co_varnames or frame.f_code.co_filename.startswith(OWN_FOLDER):
        raise Break("SB015", "sys.__excepthook__ of a NameError, for which CPython reads locals of its frame")
    for namespace in (frame.f_globals, builtins.__dict__):
        scope = vm.heap.scopes.get(id(namespace))
        if scope is not None and scope.overlay:
            raise Break("SB015", "sys.__excepthook__ of a NameError, after globals were changed")
        vm.heap.guard_call(names_in, names_in(namespace), Pinned(namespace))


def run_breakpoint(*args: object, **kwargs: object) -> object:
    """`sys.breakpointhook` of C, interpreted."""
    name = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    if name == "0":
        return None
    module, _, function = name.rpartition(".")
    try:
        hook = getattr(importlib.import_module(module or "builtins"), function)
    except (ImportError, AttributeError, ValueError, TypeError):
        warnings.warn(f'Ignoring unimportable $PYTHONBREAKPOINT: "{name}"', RuntimeWarning, stacklevel=2)
        return None
    return hook(*args, **kwargs)  # type: ignore[no-any-return]


@suspending_rule(sys.__breakpointhook__)
def _break_by_environment(vm: VM, cont: object, /, *args: object, **kwargs: object) -> None:
    if sys.flags.ignore_environment:
        raise Break("SB006", "breakpoint() without an environment")
    vm.call(run_breakpoint, args, kwargs, cont)


@suspending_rule(builtins.breakpoint)
def _break_by_hook(vm: VM, cont: object, /, *args: object, **kwargs: object) -> None:
    hook = vm.heap.scope(sys.__dict__).read("breakpointhook")
    if hook is MISSING:
        raise Raised(RuntimeError("lost sys.breakpointhook"))
    vm.call(hook, args, kwargs, cont)


@rule(posix.putenv, posix.unsetenv)
def _set_environment(vm: VM, callee: types.BuiltinFunctionType, /, *args: object) -> None:
    if any(type(each) is not bytes for each in args):
        raise Break("SB015", f"{callee.__name__} with something else than bytes")
    note(vm, PlainCall(callee, args, {}), False)


def stamp_of(path: str) -> tuple[float, ...]:
    """A pure reader for guards: size and time of a source file."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return float(found.st_size), found.st_mtime


@rule(linecache.checkcache, linecache.lazycache)
def _check_lines(vm: VM, callee: types.FunctionType, /, *args: object, **kwargs: object) -> bool | None:
    """Lines are read below, from files alone."""
    return None if callee is linecache.checkcache else False


@rule(linecache.getline)
def _line(vm: VM, filename: str, lineno: int, module_globals: object = None) -> str:
    vm.heap.guard_call(stamp_of, stamp_of(filename), Pinned(filename))
    entry = linecache.cache.get(filename)
    if entry is not None and (len(entry) == 1 or entry[1] is None):
        raise Break("SB015", "lines of code that has no file")
    try:
        with open(filename, "rb") as file:
            lines = io.TextIOWrapper(io.BytesIO(file.read()), encoding=_encoding_of(filename)).readlines()
    except (OSError, UnicodeError, SyntaxError):
        return ""
    return lines[lineno - 1].rstrip("\n") + "\n" if 1 <= lineno <= len(lines) else ""


def _encoding_of(path: str) -> str:
    with open(path, "rb") as file:
        return tokenize.detect_encoding(file.readline)[0]


@rule(*[getattr(sys, name) for name in ("_getframemodulename",) if hasattr(sys, name)])
def _module_of_frame(vm: VM, depth: int = 0) -> object:
    name = caller_module(vm, depth, None)
    if type(name) is not str:
        raise Break("SB020", "sys._getframemodulename of a frame outside the call")
    return name
