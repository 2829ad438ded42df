"""Where rules are registered.   a callable or a code object  ->  how the interpreter performs a call of it

Three forms, told apart by the names of a rule's parameters:

    @rule(math.hypot)
    def _hypot(vm, x, y, /): ...                   the callee's own parameters; the rule returns the value
    def _hypot(vm, args, kwargs): ...              the arguments as they come; the rule returns the value
    def _hypot(vm, args, kwargs, cont): ...        the rule gives the value to `cont`, perhaps through another call

A call that does not fit the callee's signature goes to the callee itself, which refuses it in its own words.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from stator.interp.services import VM

Rule = Callable[[Any, Any, Any, Any], None]  # vm, args, kwargs, cont

RULES: dict[int, Rule] = {}  # id of a callable (kept alive in _RULED)
CODE_RULES: dict[int, Any] = {}  # id of a code object: functions that one `def` makes again and again
_RULED: list[Any] = []
_SIGNED = (types.FunctionType, types.BuiltinFunctionType)
_RAW = ["vm", "args", "kwargs"]


def rule(*callables: Any, arity: tuple[int, ...] = ()) -> Callable[[Any], Any]:
    """Register how the interpreter itself performs a call of these objects.

    With `arity`, only calls with so many positional arguments are the rule's.
    """
    def register(function: Any) -> Any:
        names = list(inspect.signature(function).parameters)
        continuing = function if names[:4] == [*_RAW, "cont"] else _returning(function)
        for callable_ in callables:
            if arity:
                performed = _checked(callable_, continuing, lambda: (min(arity), max(arity), frozenset()))
            elif names[:3] != _RAW:
                signature = inspect.signature(function)
                performed = _checked(callable_, continuing, lambda: _bounds(function, skip=1), signature)
            elif type(callable_) in _SIGNED:
                performed = _checked(callable_, continuing, functools.partial(_bounds, callable_))
            else:
                performed = continuing
            RULES[id(callable_)] = performed
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


def _returning(function: Any) -> Rule:
    """The rule, its result given to the continuation."""
    if list(inspect.signature(function).parameters)[:3] == _RAW:
        return lambda vm, args, kwargs, cont: vm.give(function(vm, args, kwargs), cont)
    return lambda vm, args, kwargs, cont: vm.give(function(vm, *args, **(kwargs or {})), cont)


Bounds = tuple[int, int, frozenset[str] | None]


def _fits(bound: inspect.Signature, args: Any, kwargs: Any) -> bool:
    try:
        bound.bind(None, *args, **kwargs)
    except TypeError:
        return False
    return True


def _checked(callable_: Any, performed: Rule, bounds_of: Callable[[], Bounds],
             bound: inspect.Signature | None = None) -> Rule:
    """The rule, for calls that fit; `bounds_of` is asked at the first call.  `bound`: of named parameters."""
    bounds: Bounds | None = None

    def checked(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        nonlocal bounds
        if bounds is None:
            bounds = bounds_of()
        least, most, names = bounds
        if least <= len(args) + len(kwargs) <= most and (names is None or not kwargs or kwargs.keys() <= names) \
                and (bound is None or not kwargs or _fits(bound, args, kwargs)):
            return performed(vm, args, kwargs, cont)
        vm.give(vm.native_unhooked(callable_, args, kwargs), cont)
    return checked


def _bounds(callable_: Any, skip: int = 0) -> Bounds:
    """How few and how many arguments a function takes, and which keywords (None: any), without the first `skip`."""
    try:
        parameters = list(inspect.signature(callable_, follow_wrapped=False).parameters.values())[skip:]
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
