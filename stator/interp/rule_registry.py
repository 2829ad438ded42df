"""Where rules are registered.   a callable or a code object  ->  how the interpreter performs a call of it

    @rule(math.hypot)
    def _hypot(vm, x, y, /): ...                    the callee's own parameters; the rule returns the value
    @rule(str.upper, str.lower)
    def _case(vm, callee, text, /): ...             `callee` is the registered object that is called
    @suspending_rule(operator.getitem)
    def _getitem(vm, cont, obj, key, /): ...        gives the value to `cont`, perhaps through a call that it begins

LISTED: the row in the native table performs the call.  INTERPRETED: the Python function is interpreted.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from stator.breaks import Break
from stator.interp.services import VM
from stator.native.rows_declare import underlying

Rule = Callable[[Any, Any, Any, Any], None]  # vm, args, kwargs, cont
Binder = Callable[[Any, Any], bool]  # args, kwargs

RULES: dict[int, Rule] = {}  # id of a callable (kept alive in RULED)
CODE_RULES: dict[int, Any] = {}  # id of a code object: functions that one `def` makes again and again
RULED: list[tuple[Any, Any]] = []  # each callable or code object, and its rule
PERFORMERS: dict[int, Callable[[object], Rule]] = {}  # id of a callable with a rule -> the same rule for a copy of it
TAKES_UNREAD: set[int] = set()
TAKES_GRAPH_SCALARS: set[int] = set()
UNASKED: set[int] = set()
LISTED: Any = object()
INTERPRETED: Any = object()
_SIGNED = (types.FunctionType, types.BuiltinFunctionType)


def rule(*callables: object, **facts: bool) -> Callable[[Any], Any]:
    """Register how the interpreter performs a call of these objects.

    Facts: it takes unread values (`unread`), or graph scalars alone (`graph_scalars`); torch calls no mode (`unasked`).
    """
    return _registers(callables, False, **facts)


def suspending_rule(*callables: object, **facts: bool) -> Callable[[Any], Any]:
    """The same of a rule that may begin a call of interpreted code, and gives the value to its continuation."""
    return _registers(callables, True, **facts)


def refuse(*callables: object, code: str, detail: str, **how: Any) -> None:
    """Break at every call of these objects."""
    @rule(*callables)
    def refused(vm: VM, /, *args: Any, **kwargs: Any) -> None:
        raise Break(code, detail, **how)


def code_rule(code: types.CodeType) -> Any:
    """Register a suspending rule for every function with this code: `f(vm, cont, function, *args, **kwargs)`."""
    def register(function: object) -> Any:
        CODE_RULES[id(code)] = function
        RULED.append((code, function))
        return function
    return register


def _registers(callables: tuple[Any, ...], suspends: bool, unread: bool = False, graph_scalars: bool = False,
               unasked: bool = False) -> Callable[[Any], Any]:
    callables = tuple(map(underlying, callables))  # as calls reach them: a class may give a method of pybind11 wrapped
    for holds, ids in ((unread, TAKES_UNREAD), (graph_scalars, TAKES_GRAPH_SCALARS), (unasked, UNASKED)):
        if holds:
            ids.update(map(id, callables))

    def register(function: Any) -> Any:
        leading = 2 if suspends else 1
        parameters = list(inspect.signature(function).parameters.values())
        takes_callee = len(parameters) > leading and parameters[leading].name == "callee"
        parameters = parameters[leading + takes_callee:]
        takes_all = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        own = _binder(parameters)
        for callee in callables:
            fits = _own_binder(callee) if takes_all and type(callee) in _SIGNED else own
            perform = functools.partial(_performed, function=function, fits=fits, suspends=suspends, named=takes_callee)
            RULES[id(callee)], PERFORMERS[id(callee)] = perform(callee), perform
            RULED.append((callee, function))
        return function
    return register


def alias(copy: object, original: object) -> None:
    """Give the rule of a C callable to a copy of it."""
    if (perform := PERFORMERS.get(id(original))) is not None:
        # Rules compare functions by identity; a type, and a descriptor of one, accepts its own objects alone.
        RULES[id(copy)] = perform(original if type(copy) is types.BuiltinFunctionType else copy)
        RULED.append((copy, perform))


def _performed(callee: Any, function: Any, fits: Binder, suspends: bool, named: bool) -> Rule:
    first = (callee,) if named else ()

    def perform(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        if not fits(args, kwargs):
            value = vm.native_unhooked(callee, args, kwargs)
        elif suspends:
            return function(vm, cont, *first, *args, **kwargs)
        else:
            value = function(vm, *first, *args, **kwargs)
            if value is LISTED:
                return vm.call_listed(callee, callee, None, args, kwargs, cont)
            if value is INTERPRETED:
                return vm.push(vm.frame_for(callee, args, kwargs), cont)
        vm.give(value, cont)
    return perform


def _binder(parameters: list[inspect.Parameter]) -> Binder:
    """Whether arguments can be bound to the parameters."""
    signature = inspect.Signature(parameters)
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    least = sum(each.default is each.empty for each in positional)
    most = sys.maxsize if any(each.kind is each.VAR_POSITIONAL for each in parameters) else len(positional)
    unnamed = set() if any(each.kind is each.VAR_KEYWORD for each in parameters) else {
        each.name for each in parameters if each.kind is each.POSITIONAL_ONLY}
    needs_keywords = any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters)

    def fits(args: Any, kwargs: Any) -> bool:
        if not kwargs:
            return least <= len(args) <= most and not needs_keywords
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            return False
        return unnamed.isdisjoint(kwargs)  # Python 3.13.0 binds them by name where they have a default
    return fits


def _own_binder(callee: Any) -> Binder:
    """The same of the callee's own parameters, read at the first call."""
    known: list[Binder] = []

    def fits(args: Any, kwargs: Any) -> bool:
        if not known:
            try:
                known.append(_binder(list(inspect.signature(callee, follow_wrapped=False).parameters.values())))
            except (ValueError, TypeError):
                known.append(lambda args, kwargs: True)
        return known[0](args, kwargs)
    return fits
