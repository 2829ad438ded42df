"""Where rules are registered.   a callable or a code object  ->  how the interpreter does a call of it"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

RULES: dict[int, Any] = {}  # id of a callable (kept alive in _RULED) -> rule(vm, args, kwargs, cont)


CODE_RULES: dict[int, Any] = {}  # id of a code object: functions that one `def` makes again and again


_RULED: list[Any] = []


def rule(*callables: Any, arity: tuple[int, ...] = ()) -> Any:
    """Register how the interpreter itself does a call of these objects.

    With `arity`, a call with another number of arguments, or with keywords, goes to the C function itself, which
    refuses it in its own words before it does anything; so does a call that does not fit a function's signature.
    """
    def register(function: Any) -> Any:
        for callable_ in callables:
            RULES[id(callable_)] = _with_arity(callable_, function, arity) if arity else \
                _with_signature(callable_, function) if type(callable_) in _SIGNED else function
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


_SIGNED = (types.FunctionType, types.BuiltinFunctionType)


def _with_signature(callable_: Any, function: Any) -> Any:
    bounds: tuple[int, int, frozenset[str] | None] | None = None

    def checked(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
        nonlocal bounds
        if bounds is None:
            bounds = _bounds(callable_)
        least, most, names = bounds
        if least <= len(args) + len(kwargs) <= most and (names is None or not kwargs or kwargs.keys() <= names):
            return function(vm, args, kwargs, cont)
        vm.give(vm.native_unhooked(callable_, args, kwargs), cont)
    return checked


def _bounds(callable_: Any) -> tuple[int, int, frozenset[str] | None]:
    """How few and how many arguments a function takes, and which keywords; None: any."""
    try:
        parameters = inspect.signature(callable_, follow_wrapped=False).parameters.values()
    except (ValueError, TypeError):
        return 0, sys.maxsize, None
    kinds = {parameter.kind for parameter in parameters}
    least = sum(parameter.default is parameter.empty for parameter in parameters
                if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD))
    names = frozenset(parameter.name for parameter in parameters
                      if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY))
    endless = kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return least, sys.maxsize if endless else len(parameters), \
        None if inspect.Parameter.VAR_KEYWORD in kinds else names
