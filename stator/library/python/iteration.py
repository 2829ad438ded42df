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
from stator.interp.iteration.polyfills import each_looked_at, looked_at
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.objects import operators
from stator.interp.objects.list_lengths import symbolic_length
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.native.table import lookup
from stator.shapes.symbolic_values import SYMBOLIC

# ---------------------------------------------------------------------- iteration


@rule(iter, arity=(1, 2))
def _iter(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) == 1:
        return vm.get_iter(args[0], cont)
    vm.give(vm.native(iter, (vm.python_callable(args[0]), args[1])), cont)


@rule(looked_at)
def _looked_at(vm: VM, args: Any, kwargs: Any) -> Any:
    if type(args[0]) is not types.GeneratorType:  # which is run, and not looked into
        vm.expose_for(lookup(itertools.chain), args)
    return args[0]


@rule(itertools.chain.__dict__["from_iterable"])
def _chain_from_iterable(vm: VM, cls: Any, iterables: Any, /) -> Any:
    """C code will run through the items of what it is handed: those are shown to it one by one, as it gets there."""
    if type(iterables) in (list, tuple):
        vm.heap.expose(iterables)
        vm.expose_for(lookup(itertools.chain), tuple(iterables))
    else:
        vm.fresh[id(each_looked_at)] = each_looked_at
        out: list[Any] = []
        vm.sync(lambda: vm.get_iter(iterables), out)
        vm.sync(lambda: vm.call(each_looked_at, (out[0], looked_at), None, None), out)
        iterables = out[1]
    return vm.native(cls.from_iterable, (iterables,))


@rule(next, arity=(1, 2))
def _next(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    iterator = args[0]
    body = vm.generators.get(id(iterator))
    if body is not None:
        call = delegation.NextCall(cont, args[1], True) if len(args) == 2 else delegation.NextCall(cont)
        return delegation.resume(vm, body, None, call)
    if len(args) == 1:
        return vm.call_next(iterator, cont)
    value = vm.next_or_missing(iterator)
    vm.give(args[1] if value is MISSING else value, cont)


@rule(type(iter([])).__dict__["__next__"], arity=(1,))
def _next_of_list(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    """Of the user's iterators, whatever their class, a list's iterator stands for those that can be looked into."""
    if type(args[0]) is not type(iter([])):
        return vm.give(vm.native_unhooked(type(iter([])).__next__, args, kwargs), cont)
    vm.call_next(args[0], cont)


@rule(len)
def _len(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) != 1:
        return vm.give(vm.native_unhooked(len, args, kwargs), cont)
    value = args[0]
    cls = type(value)
    if cls is FakeTensor:
        vm.recorder.slots_used.add("__len__")  # a replaced one was called already
        if value.dim() == 0:
            raise Raised(TypeError("len() of a 0-d tensor"))
        return vm.give(value.shape[0], cont)
    if cls is ndarray:
        return vm.give(vm.native_unhooked(len, args), cont)  # a fact of its layout
    method = find(vm, cls, "__len__")
    if type(method) is types.FunctionType:
        return vm.call_function(method, (value,), None, operators.LengthOf(cont))
    length = symbolic_length(vm, value)
    if length is not MISSING:
        return vm.give(length, cont)
    operators.refuse_opaque(vm, value)
    vm.admit_slot(method, args)
    vm.heap.expose_length(value)
    vm.give(vm.native(len, args), cont)


def _own_length(method: Any) -> Any:
    """`xs.__len__()`, `super().__len__()`: the length is as much of a fact as where len() asks for it."""
    def length_of(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        if len(args) == 1 and not kwargs and is_a(args[0], method.__objclass__):
            length = symbolic_length(vm, args[0])
            if length is not MISSING:
                return vm.give(length, cont)
            operators.refuse_opaque(vm, args[0])
            vm.heap.expose_length(args[0])
        vm.give(vm.native_unhooked(method, args, kwargs), cont)

    return length_of


for _sized in (list, tuple, dict, collections.deque):
    rule(_sized.__len__)(_own_length(_sized.__len__))


@rule(operator.length_hint)
def _length_hint(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    """Of an iterator from outside that stands there by its items to come, how many they are becomes a fact."""
    if args and is_known_ahead(vm.heap, args[0]):
        tracker = vm.heap.by_standin[id(args[0])]
        if not hasattr(type(tracker.original), "__length_hint__"):  # nor does None say how long it is
            return vm.give(vm.native_unhooked(operator.length_hint, (None, *args[1:]), kwargs), cont)
        expose_upcoming(vm.heap, tracker)
    elif args:
        vm.heap.expose_length(args[0])
        vm.guard_special_methods(args[0])
    vm.call_listed(operator.length_hint, operator.length_hint, None, args, kwargs, cont)


@rule(bool)
def _bool(vm: VM, args: Any, kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        return vm.native_unhooked(bool, args, kwargs)
    if type(args[0]) in SYMBOLIC:
        return symbolic_numbers.as_bool(vm, args[0])
    symbol = truth_as_symbol(vm, args[0]) if type(args[0]) is FakeTensor else None
    if symbol is not None:
        return symbol
    return operators.truth(vm, args[0])


# ---------------------------------------------------------------------- generator methods


def _body(vm: VM, generator: Any) -> Any:
    body = vm.generators.get(id(generator))
    if body is None:
        raise Break("SB014", f"a {type(generator).__name__} from outside")
    return body


@rule(types.GeneratorType.send, types.CoroutineType.send)
def _send(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    delegation.resume(vm, _body(vm, args[0]), args[1], delegation.NextCall(cont))


@rule(types.GeneratorType.__next__)
def _generator_next(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    delegation.resume(vm, _body(vm, args[0]), None, delegation.NextCall(cont))


@rule(types.GeneratorType.__iter__)
def _generator_iter(vm: VM, args: Any, kwargs: Any) -> Any:
    return args[0]


@rule(types.CoroutineType.__await__)
def _await(vm: VM, args: Any, kwargs: Any) -> Any:
    return args[0]


@rule(types.GeneratorType.throw, types.CoroutineType.throw)
def _throw(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    body = _body(vm, args[0])
    kind, value = args[1], args[2] if len(args) > 2 else None
    if len(args) > 2 and THROWN_BY_PARTS:
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


@rule(types.GeneratorType.close, types.CoroutineType.close)
def _close(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    delegation.close(vm, _body(vm, args[0]), cont)


@rule(sys.exc_info)
def _exc_info(vm: VM, args: Any, kwargs: Any) -> Any:
    exc = vm.exc_state.topmost()
    return (None, None, None) if exc is None else (type(exc), exc, vm.traceback_of(exc))


@rule(sys.exception)
def _sys_exception(vm: VM, args: Any, kwargs: Any) -> Any:
    return vm.exc_state.topmost()
