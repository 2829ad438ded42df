"""Where rules are registered.   a callable or a code object  ->  how the interpreter does a call of it"""

from __future__ import annotations

import types
from typing import Any

RULES: dict[int, Any] = {}  # id of a callable (kept alive in _RULED) -> rule(vm, args, kwargs, cont)


CODE_RULES: dict[int, Any] = {}  # id of a code object: functions that one `def` makes again and again


_RULED: list[Any] = []


def rule(*callables: Any, arity: tuple[int, ...] = ()) -> Any:
    """Register how the interpreter itself does a call of these objects.

    With `arity`, a call with another number of arguments, or with keywords, goes to the C function itself, which
    refuses it in its own words before it does anything.
    """
    def register(function: Any) -> Any:
        for callable_ in callables:
            RULES[id(callable_)] = _with_arity(callable_, function, arity) if arity else function
            _RULED.append(callable_)
        return function
    return register


def code_rule(code: types.CodeType) -> Any:
    """Register how the interpreter calls every function with this code: `f(vm, function, args, kwargs, cont)`."""
    def register(function: Any) -> Any:
        CODE_RULES[id(code)] = function
        _RULED.append(code)
        return function
    return register


def _with_arity(callable_: Any, function: Any, arity: tuple[int, ...]) -> Any:
    def checked(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        if len(args) in arity and not kwargs:
            return function(vm, args, kwargs, cont)
        vm.give(vm.native_unhooked(callable_, args, kwargs), cont)
    return checked
