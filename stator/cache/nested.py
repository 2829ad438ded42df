"""Compile Python frames below the native instruction of a graph break (PEP 523 hook).

In: functions that it enters, directly or from C code.  Compiled are those of the program and its libraries without a
closure whose arguments hold a tensor or a module.  A function whose capture gave no graph is left alone.
"""

from __future__ import annotations

import enum
import functools
import os
import sysconfig
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stator import _core, _hook
from stator.settings import marks, torch_marks

_TORCH = os.path.dirname(torch.__file__) + os.sep
_LAYERS = os.path.join(_TORCH, "nn", "modules") + os.sep
_CALLS_PROGRAM = {os.path.join(_LAYERS, "module.py"), os.path.join(_TORCH, "utils", "_contextlib.py"),
                  os.path.join(_TORCH, "optim", "lbfgs.py")}
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = tuple({sysconfig.get_path("purelib") + os.sep, sysconfig.get_path("platlib") + os.sep})
_DISABLING = (torch_marks.WRAPPERS, os.path.join("stator", "api.py"))  # files of wrappers that `disable` makes
_FUNCTION = 0x01 | 0x02  # CO_OPTIMIZED, CO_NEWLOCALS: neither a module nor a class body
_GENERATOR = 0x20 | 0x80 | 0x200
_VARARGS, _VARKEYWORDS = 0x04, 0x08
_FUNCTIONS_PER_CODE = 8  # functions made again and again, each with its own defaults
_TRIES = 3  # calls after which a function without a graph is left alone


class Origin(enum.Enum):
    """Whose code a file holds."""

    PROGRAM = enum.auto()  # may be compiled
    PASSAGE = enum.auto()  # runs natively, what it calls is looked at
    CLOSED = enum.auto()  # runs natively with all that it calls


def origin_of(filename: str) -> Origin:
    """Where a code object comes from decides whether it is captured."""
    if filename.startswith(_TORCH):
        if filename in _CALLS_PROGRAM:
            return Origin.PASSAGE
        return Origin.PROGRAM if filename.startswith(_LAYERS) else Origin.CLOSED
    if filename.startswith(("<frozen", "<stator")):
        return Origin.CLOSED
    if filename.startswith(_STANDARD_LIBRARY) and not filename.startswith(_PACKAGES):
        return Origin.PASSAGE
    return Origin.PROGRAM


@dataclass
class NestedFunction:
    """One function that was met below a break."""

    entry: Any
    calls: int = 0
    captures: bool = True  # False: nothing worth compiling was found

    def judge(self) -> None:
        """After a call: a function whose entries hold neither a graph nor a resume point is left alone."""
        self.calls += 1
        if self.calls > _TRIES:
            return
        tags = [tag for _, _, tag in self.entry.entries()]
        if not any(tag is not None and tag.residual is not None and tag.residual.graph is not None for tag in tags):
            self.captures = self.calls < _TRIES and not tags  # nothing captured yet may mean: the stance says wait


class NestedFrames:
    """The compiled functions of one compiled call that were entered below its breaks."""

    def __init__(self, make_entry: Callable[[types.FunctionType], Any], own_codes: set[types.CodeType]) -> None:
        self._make_entry = make_entry
        self._own_codes = own_codes
        self._origins: dict[types.CodeType, Origin] = {}
        self.met: dict[Any, NestedFunction] = {}
        self._per_code: dict[types.CodeType, int] = {}
        # invoke(function, *args, **kwargs): call natively; frames entered below are compiled in turn.
        self.invoke: Callable[..., Any] = functools.partial(_hook.call_below, self.entered)

    def entered(self, func: types.FunctionType, args: tuple[Any, ...], closure: object) -> Any:
        """The hook's question about one frame: its value, or RUN, or RUN_ALL."""
        code = func.__code__
        origin = self._origins.get(code)
        if origin is None:
            origin = self._origins[code] = Origin.PASSAGE if code in self._own_codes else origin_of(code.co_filename)
        if origin is Origin.CLOSED or _core.eager_depth():
            if torch_marks.alone_disabled(func) is None:  # asked at every call below a break
                return closed(func)
            mark = marks.disabled_mark(func)
            return _hook.RUN_ALL if mark is None or mark.recursive else _hook.RUN
        if origin is Origin.PASSAGE or closure or code.co_flags & _GENERATOR or code.co_flags & _FUNCTION != _FUNCTION:
            return _hook.RUN
        mark = marks.disabled_mark(func)
        if mark is not None:
            return closed(func) if mark.recursive else _hook.RUN
        if not any(holds_tensors(value) for value in args):
            return _hook.RUN
        nested = self.function(func)
        if nested is None or not nested.captures:
            return _hook.RUN
        try:
            return call_with_slots(nested.entry, code, args)
        finally:
            nested.judge()

    def function(self, func: types.FunctionType) -> NestedFunction | None:
        """The function's compiled form; functions that differ in nothing but identity share one."""
        code = func.__code__
        plain = func.__defaults__ is None and func.__kwdefaults__ is None and not func.__dict__
        key = (code, id(func.__globals__)) if plain else (code, id(func))
        found = self.met.get(key)
        if found is None:
            count = self._per_code.get(code, 0)
            if count >= _FUNCTIONS_PER_CODE:
                return None
            self._per_code[code] = count + 1
            found = self.met[key] = NestedFunction(self._make_entry(func))  # keeps `func`, hence its id
        return found


def closed(func: types.FunctionType) -> object:
    """RUN_ALL; wrappers that `disable` has made share one code, whose calls need no hook from then on."""
    if func.__code__.co_filename.endswith(_DISABLING) and marks.is_disabled(func):
        _hook.close_code(func.__code__)
    return _hook.RUN_ALL


def holds_tensors(value: Any) -> bool:
    """A tensor, a module, or a plain container with one of them in it; asks no object of the program anything."""
    cls = type(value)
    if issubclass(cls, (torch.Tensor, torch.nn.Module)):
        return True
    if cls is list or cls is tuple:
        return any(issubclass(type(item), torch.Tensor) for item in value)
    if cls is dict:
        return any(issubclass(type(item), torch.Tensor) for item in value.values())
    return False


def call_with_slots(entry: Any, code: types.CodeType, slots: tuple[Any, ...]) -> Any:
    """Call with arguments as CPython has bound them: positional, keyword-only, *args, **kwargs."""
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    at = positional + keyword_only
    args = slots[:positional]
    if code.co_flags & _VARARGS:
        args += slots[at]
        at += 1
    kwargs = dict(zip(code.co_varnames[positional:positional + keyword_only], slots[positional:], strict=False))
    if code.co_flags & _VARKEYWORDS:
        kwargs.update(slots[at])
    return entry(*args, **kwargs)
