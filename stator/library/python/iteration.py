"""Rules for iteration and suspended frames: iter, next, len, generator methods, sys.exc_info."""

from __future__ import annotations

import collections
import itertools
import operator
import sys
import types
import warnings
from typing import Any

from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.deprecations import THROWN_BY_PARTS
from stator.heap.iterators.peekable_iterators import expose_upcoming, is_known_ahead
from stator.host.value_kinds import is_a
from stator.interp.branches.captured_branches import truth_as_symbol
from stator.interp.frame import Raised
from stator.interp.generators import delegation
from stator.interp.iteration import each_looked_at, looked_at
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.numbers.symbolic_numbers import symbolic_length
from stator.interp.objects import operators
from stator.interp.rule_registry import LISTED, rule, suspending_rule
from stator.interp.vm import VM
from stator.native.table import lookup
from stator.shapes.symbolic_values import SYMBOLIC

# ---------------------------------------------------------------------- iteration


@suspending_rule(iter)
def _iter(vm: VM, cont: Any, value: Any, sentinel: Any = MISSING, /) -> None:
    if sentinel is MISSING:
        return vm.get_iter(value, cont)
    vm.give(vm.native(iter, (vm.python_callable(value), sentinel)), cont)


@rule(looked_at)
def _looked_at(vm: VM, value: Any) -> Any:
    if type(value) is not types.GeneratorType:  # which is run, and not looked into
        vm.expose_for(lookup(itertools.chain), (value,))
    return value


@rule(itertools.chain.__dict__["from_iterable"])
def _chain_from_iterable(vm: VM, cls: Any, iterables: Any, /) -> Any:
    """C code will run through the items of what it is handed: those are shown to it one by one, as it gets there."""
    if type(iterables) in (list, tuple):
        vm.heap.expose(iterables)
        vm.expose_for(lookup(itertools.chain), tuple(iterables))
    else:
        vm.fresh[id(each_looked_at)] = each_looked_at
        walked = vm.sync(lambda: vm.get_iter(iterables))
        iterables = vm.sync(lambda: vm.call(each_looked_at, (walked, looked_at), None, None))
    return vm.native(cls.from_iterable, (iterables,))


@suspending_rule(next)
def _next(vm: VM, cont: Any, iterator: Any, default: Any = MISSING, /) -> None:
    body = vm.generators.get(id(iterator))
    if body is not None:
        call = delegation.NextCall(cont) if default is MISSING else delegation.NextCall(cont, default, True)
        return delegation.resume(vm, body, None, call)
    if default is MISSING:
        return vm.call_next(iterator, cont)
    value = vm.next_or_missing(iterator)
    vm.give(default if value is MISSING else value, cont)


@suspending_rule(type(iter([])).__dict__["__next__"])
def _next_of_list(vm: VM, cont: Any, iterator: Any, /) -> None:
    """Of the user's iterators, whatever their class, a list's iterator stands for those that can be looked into."""
    if type(iterator) is not type(iter([])):
        return vm.give(vm.native_unhooked(type(iter([])).__next__, (iterator,)), cont)
    vm.call_next(iterator, cont)


@suspending_rule(len)
def _len(vm: VM, cont: Any, value: Any, /) -> None:
    cls = type(value)
    if cls is FakeTensor:
        vm.recorder.slots_used.add("__len__")  # a replaced one was called already
        if value.dim() == 0:
            raise Raised(TypeError("len() of a 0-d tensor"))
        return vm.give(value.shape[0], cont)
    if cls is ndarray:
        return vm.give(vm.native_unhooked(len, (value,)), cont)  # a fact of its layout
    method = find(vm, cls, "__len__")
    if type(method) is types.FunctionType:
        return vm.call_function(method, (value,), None, operators.LengthOf(cont))
    length = symbolic_length(vm, value)
    if length is not MISSING:
        return vm.give(length, cont)
    operators.refuse_opaque(vm, value)
    vm.admit_slot(method, (value,))
    vm.heap.expose_length(value)
    vm.give(vm.native(len, (value,)), cont)


@rule(list.__len__, tuple.__len__, dict.__len__, collections.deque.__len__)
def _own_length(vm: VM, callee: Any, value: Any, /) -> Any:
    """`xs.__len__()`, `super().__len__()`: the length is as much of a fact as where len() asks for it."""
    if is_a(value, callee.__objclass__):
        length = symbolic_length(vm, value)
        if length is not MISSING:
            return length
        operators.refuse_opaque(vm, value)
        vm.heap.expose_length(value)
    return vm.native_unhooked(callee, (value,))


@rule(operator.length_hint)
def _length_hint(vm: VM, value: Any, /, *default: Any) -> Any:
    """Of an iterator from outside that stands there by its items to come, how many they are becomes a fact."""
    if is_known_ahead(vm.heap, value):
        tracker = vm.heap.by_standin[id(value)]
        if not hasattr(type(tracker.original), "__length_hint__"):  # nor does None say how long it is
            return vm.native_unhooked(operator.length_hint, (None, *default))
        expose_upcoming(vm.heap, tracker)
    else:
        vm.heap.expose_length(value)
        vm.guard_special_methods(value)
    return LISTED


@rule(bool)
def _bool(vm: VM, /, *values: Any) -> Any:
    if len(values) != 1:
        return vm.native_unhooked(bool, values)
    value = values[0]
    if type(value) in SYMBOLIC:
        return symbolic_numbers.as_bool(vm, value)
    symbol = truth_as_symbol(vm, value) if type(value) is FakeTensor else None
    return operators.truth(vm, value) if symbol is None else symbol


# ---------------------------------------------------------------------- generator methods


def _body(vm: VM, generator: object) -> Any:
    body = vm.generators.get(id(generator))
    if body is None:
        raise Break("SB014", f"a {type(generator).__name__} from outside")
    return body


@suspending_rule(types.GeneratorType.send, types.CoroutineType.send)
def _send(vm: VM, cont: Any, generator: Any, value: Any, /) -> None:
    delegation.resume(vm, _body(vm, generator), value, delegation.NextCall(cont))


@suspending_rule(types.GeneratorType.__next__)
def _generator_next(vm: VM, cont: Any, generator: Any, /) -> None:
    delegation.resume(vm, _body(vm, generator), None, delegation.NextCall(cont))


@rule(types.GeneratorType.__iter__, types.CoroutineType.__await__)
def _generator_iter(vm: VM, generator: Any, /) -> Any:
    return generator


@suspending_rule(types.GeneratorType.throw, types.CoroutineType.throw)
def _throw(vm: VM, cont: Any, generator: Any, kind: Any, value: Any = MISSING, traceback: Any = None, /) -> None:
    body = _body(vm, generator)
    if value is MISSING:
        value = None
    elif THROWN_BY_PARTS:
        vm.call_sync(warnings.warn, (THROWN_BY_PARTS, DeprecationWarning))
    if is_a(kind, type) and issubclass(kind, BaseException):
        exc = value if is_a(value, kind) else vm.call_sync(kind, () if value is None else (value,))
        if not is_a(exc, BaseException):
            exc = TypeError(f"calling {kind!r} should have returned an instance of BaseException, "
                            f"not {type(exc).__name__}")
    elif is_a(kind, BaseException):
        exc = kind
    else:
        raise Raised(TypeError("exceptions must be classes or instances deriving from BaseException, "
                               f"not {type(kind).__name__}"))
    delegation.throw(vm, body, exc, delegation.NextCall(cont))


@suspending_rule(types.GeneratorType.close, types.CoroutineType.close)
def _close(vm: VM, cont: Any, generator: Any, /) -> None:
    delegation.close(vm, _body(vm, generator), cont)


@rule(sys.exc_info)
def _exc_info(vm: VM) -> Any:
    exc = vm.exc_state.topmost()
    return (None, None, None) if exc is None else (type(exc), exc, vm.traceback_of(exc))


@rule(sys.exception)
def _sys_exception(vm: VM) -> Any:
    return vm.exc_state.topmost()
