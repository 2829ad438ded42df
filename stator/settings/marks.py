"""Marks of users on particular objects: `stator.disable`, `allow_in_graph`, `substitute_in_graph`, `compile` ...

Marks are kept by identity: two equal callables are different objects to the program. A bound method has no
lasting identity: the mark is that of the function behind it.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stator import _core
from stator.errors import OptionValueError
from stator.settings import torch_marks

Value = TypeVar("Value")


class IdentityTable(Generic[Value]):
    """A mapping by identity that does not keep its keys alive where they can be referenced weakly."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[object, Value]] = {}

    def put(self, key: object, value: Value) -> None:
        number = id(key)
        try:
            # It runs before the number can be given to another object.
            holder: object = weakref.ref(key, lambda _: self._rows.pop(number, None))
        except TypeError:
            holder = key
        self._rows[number] = (holder, value)

    def get(self, key: object) -> Value | None:
        row = self._rows.get(id(key))
        return None if row is None else row[1]

    def __contains__(self, key: object) -> bool:
        return id(key) in self._rows

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class Disabled:
    """`recursive`: whether what the function calls is left alone as well."""

    recursive: bool
    reason: str | None


@dataclass(frozen=True)
class Substitute:
    """The Python function that is captured in place of a native one."""

    replacement: types.FunctionType
    can_constant_fold_through: bool


@dataclass(frozen=True)
class Compiled:
    """Origin of a compiled callable."""

    original: Callable[..., Any]  # as the user gave it
    traced: Callable[..., Any]  # the function or method that `capture` traces, and the interpreter may inline
    settings: Any


_allowed: IdentityTable[bool] = IdentityTable()
_disabled: IdentityTable[Disabled] = IdentityTable()
_substitutes: IdentityTable[Substitute] = IdentityTable()
_constant_results: IdentityTable[bool] = IdentityTable()
_COMPILED_KEY = "__stator_compiled__"
_region = threading.local()


def is_unmarked(fn: types.FunctionType) -> bool:
    """Whether a function certainly has no mark: it is in no table and has no attributes."""
    number = id(fn)
    return not fn.__dict__ and number not in _allowed._rows and number not in _disabled._rows \
        and number not in _substitutes._rows and number not in _constant_results._rows \
        and not (torch_marks.is_allowed(fn) or torch_marks.is_disallowed(fn))


def _marked_object(fn: object) -> object:
    return fn.__func__ if type(fn) is types.MethodType else fn


def allow_in_graph(fn: object) -> None:
    _allowed.put(_marked_object(fn), True)


def allowed_in_graph(fn: object) -> bool:
    """Whether a call of `fn` is put into the graph as it is."""
    marked = _marked_object(fn)
    return marked in _allowed or torch_marks.is_allowed(marked)


def disable(fn: object, recursive: bool, reason: str | None) -> None:
    _disabled.put(_marked_object(fn), Disabled(recursive, reason))


def is_disabled(fn: object) -> bool:
    return disabled_mark(fn) is not None


def disabled_mark(fn: object) -> Disabled | None:
    """The user's mark; what torch.compiler.disable has marked is disabled too."""
    marked = _marked_object(fn)
    mark = _disabled.get(marked)
    if mark is None:
        reason = torch_marks.disabled_because(marked)
        if reason is not None:
            alone = torch_marks.alone_disabled(marked)
            mark = Disabled(alone is None, reason or None)
            if alone is not None and _disabled.get(alone) is None:
                _disabled.put(alone, mark)
    return mark


def substitute_in_graph(original: object, mark: Substitute) -> None:
    _substitutes.put(_marked_object(original), mark)


def substitute(fn: object) -> Substitute | None:
    return _substitutes.get(_marked_object(fn))


def assume_constant_result(fn: object) -> None:
    _constant_results.put(_marked_object(fn), True)


def is_constant_result(fn: object) -> bool:
    """Whether `fn` may be called while tracing and its result taken as a constant; torch's marks count too."""
    marked = _marked_object(fn)
    return marked in _constant_results or torch_marks.is_constant_result(marked)


def compiled(fn: object, mark: Compiled) -> None:
    """Mark `fn` as compiled, in the object itself; wrappers that `functools.wraps` gave the mark are not its owner."""
    attributes_of(fn)[_COMPILED_KEY] = (weakref.ref(fn), mark)


def compiled_mark(fn: object) -> Compiled | None:
    """The origin of `fn`, if `stator.compile` made it; a bound method is as compiled as its function."""
    marked = _marked_object(fn)
    try:
        owner, mark = attributes_of(marked)[_COMPILED_KEY]
    except (AttributeError, KeyError):
        return None
    return mark if owner() is marked else None


def attributes_of(obj: object) -> dict[str, Any]:
    """The object's own `__dict__`, past any `__getattribute__` that forwards to another object."""
    attributes: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    return attributes


def is_compiling() -> bool:
    """True in captured code, where the interpreter answers; False in code that Python runs."""
    return False


def graph_break(msg: str = "") -> None:
    """End the graph here. Without effect in code that Python runs; the interpreter knows this function."""


def skip_frame(reason: object = "") -> object:
    """Leave one frame alone: called inside a function, that very call; given a function, all its calls.

    The frame runs natively from there to its end, the functions it calls are compiled, and its callers go on
    captured. Without effect in code that Python runs; the interpreter knows this function.
    """
    if isinstance(reason, str):
        return None
    disable(reason, False, "it is marked with stator.skip_frame")
    return reason


def disable_depth() -> int:
    """How many disabled regions this thread is in; nothing is captured while it is above 0."""
    depth: int = _core.eager_depth()
    return depth


class DisabledBlock:
    """Capture nothing, and run no compiled code, in this thread while the block runs."""

    def __enter__(self) -> None:
        _core.enter_eager()

    def __exit__(self, *exc_info: object) -> None:
        _core.leave_eager()


class DisabledContext(DisabledBlock):
    """The context that `stator.disable()` is; captured code breaks at it."""

    recursive = True

    def __enter__(self) -> None:
        if not self.recursive:
            raise OptionValueError("disable(recursive=False) marks one function and cannot be a context")
        super().__enter__()


def error_policy() -> bool | None:
    """Whether a graph break is an error in this thread now; None outside such regions."""
    return getattr(_region, "error_on_break", None)


def set_error_policy(value: bool | None) -> bool | None:
    """Replace the policy; returns the one before. The interpreter keeps its own while it traces."""
    before = error_policy()
    _region.error_on_break = value
    return before


class ErrorOnGraphBreak:
    """Result of `stator.error_on_graph_break(value)`: a context and a decorator, in Python, so that it is captured."""

    def __init__(self, value: bool | None) -> None:
        self.value = value
        self.outer: list[bool | None] = []

    def __enter__(self) -> None:
        self.outer.append(set_error_policy(self.value))

    def __exit__(self, *exc_info: object) -> None:
        set_error_policy(self.outer.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        value = self.value

        @functools.wraps(fn)
        def run_under_policy(*args: object, **kwargs: object) -> Any:
            before = set_error_policy(value)
            try:
                return fn(*args, **kwargs)
            finally:
                set_error_policy(before)

        return run_under_policy
