"""Rules for containers, iteration and suspended frames.   dict.get, list.append, iter, next, len, generator.send

    await agen.asend(v)       C drives the driver of the interpreted frame (see interp/generators)

Methods without a rule (dict.update, list.extend) run natively on the stand-in: interp/calls/native_calls.py, over
Python iterables as interpreted loops: interp/iteration.py.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import sys
import types
import warnings
from typing import Any

import numpy
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator._core import asks_keys
from stator.breaks import Break
from stator.code.intrinsics import THROWN_BY_PARTS
from stator.guards.guard import Kind
from stator.heap.identity_facts import note_compared
from stator.heap.iterators.peekable_iterators import expose_peekable, is_known_ahead
from stator.heap.pure_readers import mapping_behind
from stator.heap.raw_access import slot_members
from stator.heap.tracker import Box, ShadowKind, VariableTracker
from stator.host.value_kinds import is_a
from stator.interp.branches.captured_branches import truth_as_symbol
from stator.interp.calls.module_copies import refuse_changed_builtins
from stator.interp.frame import Continuation, Raised
from stator.interp.generators.suspended_frames import AWAITED, NextCall, close, resume, throw
from stator.interp.iteration import each_looked_at, looked_at
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.numbers.symbolic_numbers import specialise_deep, symbolic_length
from stator.interp.objects import operators
from stator.interp.outside_exceptions import handled_exception
from stator.interp.rule_registry import LISTED, rule, suspending_rule
from stator.interp.vm import VM
from stator.native.rows_declare import ROWS
from stator.shapes.symbolic_values import SYMBOLIC


@rule(dict.get, unasked=True)
def _dict_get(vm: VM, mapping: Any, key: object, /, *default: Any) -> Any:
    key = specialise_deep(vm, key)
    if len(default) > 1 or type(key) not in operators.SCALARS or asks_keys(mapping, key):
        vm.heap.expose(mapping)
        vm.heap.expose_deep(key)
        note_compared(vm.heap, (mapping, key))
        return vm.native(dict.get, (mapping, key, *default))
    tracker = vm.heap.tracker_of(mapping)
    if tracker is not None and key not in tracker.initial:
        vm.heap.guard(tracker.source, Kind.ABSENT, key)
    value = dict.get(mapping, key, *default)
    return value.force() if type(value) is Box else value


@rule(dict.setdefault, unasked=True)
def _set_default(vm: VM, mapping: object, key: object, default: object = None, /) -> Any:
    """Whether the key is there is a fact; the others are none."""
    if type(mapping) is not dict or type(key) not in (str, int) or asks_keys(mapping, key):
        return LISTED
    if key in mapping:
        return _dict_get(vm, mapping, key)
    tracker = vm.heap.tracker_of(mapping)
    if tracker is not None and key not in tracker.initial:
        vm.heap.guard(tracker.source, Kind.ABSENT, key)
    vm.heap.note_write(mapping)
    mapping[key] = default
    return default


@rule(dict.keys, collections.OrderedDict.keys)
def _keys(vm: VM, callee: Any, mapping: Any, /) -> Any:
    tracker = vm.heap.tracker_of(mapping)
    if tracker is not None:
        if tracker.shape is ShadowKind.OPAQUE:
            raise Break("SB005", f"keys of a {type(mapping).__name__}")
        vm.heap.expose_keys(tracker)
    return callee(mapping)


@rule(*[cls.__dict__[name] for cls in (dict, collections.OrderedDict, types.MappingProxyType)
        for name in ("items", "values")], types.MappingProxyType.keys)
def _view(vm: VM, callee: Any, mapping: Any, /) -> Any:
    """A view shows which keys there are, in which order, and the values."""
    vm.heap.expose(mapping_behind(mapping) if type(mapping) is types.MappingProxyType else mapping)
    return vm.native_unhooked(callee, (mapping,))


@rule(list.append, unread=True, unasked=True)
def _append(vm: VM, items: object, item: object, /) -> Any:
    """Nothing of the list is looked at: how long it is, or what it holds, is no fact."""
    if type(items) is not list:
        return LISTED
    vm.heap.note_write(items)
    items.append(item)
    return None


@rule(object.__reduce_ex__, object.__reduce__, object.__getstate__, object.__dir__, bytearray.__reduce_ex__,
      *(cls.__reduce__ for cls in (set, frozenset, bytearray, collections.OrderedDict, collections.deque,
                                   collections.defaultdict, functools.partial, types.SimpleNamespace)))
def _taken_apart(vm: VM, callee: Any, obj: Any, /, *protocol: object) -> Any:
    tracker = vm.heap.tracker_of(obj)
    if tracker is not None:
        if tracker.shape in (ShadowKind.OPAQUE, ShadowKind.TENSOR):
            raise Break("SB005", f"{callee.__name__} of a {type(obj).__name__}")
        if tracker.shape is ShadowKind.PEEKABLE:
            raise Break("SB014", f"a {type(tracker.original).__name__} from outside, copied or asked")
        vm.heap.expose(obj)
        vm.heap.expose_attributes(tracker)
        expose_slots(vm, tracker)
    elif is_a(obj, (set, frozenset)):
        vm.check_order(obj)
    refuse_changed_builtins(vm, callee.__name__)
    row = ROWS.get(id(type(obj).__dict__.get("__reduce__")))
    if callee is object.__reduce_ex__ and (is_a(obj, BaseException) or row is not None and row.warns):
        # C code would run a method that has a rule, or warn of it
        return vm.call_sync(vm.sync(lambda: vm.load_attr(obj, "__reduce__")), ())
    return vm.native(callee, (obj, *protocol))


def expose_slots(vm: VM, tracker: VariableTracker) -> None:
    """C code will look at every slot: those that are empty, and what the others hold, become facts."""
    for member in slot_members(type(tracker.original)) if tracker.initial_slots is not None else ():
        try:
            value = member.__get__(tracker.standin)
        except AttributeError:
            if member not in (tracker.initial_slots or ()):
                vm.heap.guard(tracker.source, Kind.SLOT_EMPTY, (member.__name__, member.__objclass__))
            continue
        if type(value) is Box:
            member.__set__(tracker.standin, value.force())


@rule(memoryview)
def _memoryview(vm: VM, object: object) -> Any:
    if type(object) is numpy.ndarray:
        raise Break("SB005", "a memoryview of an array")  # writes to it would not be noticed
    return LISTED


@rule(memoryview.release, memoryview.__exit__)
def _release(vm: VM, callee: object, view: object, /, *error: object) -> Any:
    if vm.heap.tracker_of(view) is not None:
        raise Break("SB006", "a memoryview from outside is released")
    return vm.native(callee, (view, *error))


@suspending_rule(iter)
def _iter(vm: VM, cont: Continuation | None, value: object, sentinel: object = MISSING, /) -> None:
    if sentinel is MISSING:
        return vm.get_iter(value, cont)
    vm.give(vm.native(iter, (vm.python_callable(value), sentinel)), cont)


@rule(looked_at)
def _looked_at(vm: VM, value: object) -> Any:
    if type(value) is not types.GeneratorType:  # which is run, and not looked into
        vm.expose_for(ROWS[id(itertools.chain)], (value,))
    return value


@rule(itertools.chain.__dict__["from_iterable"])
def _chain_from_iterable(vm: VM, cls: Any, iterables: Any, /) -> Any:
    """C code will run through the items of what it is handed: those are shown to it one by one, as it gets there."""
    if type(iterables) in (list, tuple):
        vm.heap.expose(iterables)
        vm.expose_for(ROWS[id(itertools.chain)], tuple(iterables))
    else:
        vm.fresh[id(each_looked_at)] = each_looked_at
        walked = vm.sync(lambda: vm.get_iter(iterables))
        iterables = vm.sync(lambda: vm.call(each_looked_at, (walked, looked_at), None, None))
    return vm.native(cls.from_iterable, (iterables,))


@suspending_rule(next)
def _next(vm: VM, cont: Continuation | None, iterator: object, default: object = MISSING, /) -> None:
    body = vm.generators.iterated(iterator)
    if body is not None:
        call = NextCall(cont) if default is MISSING else NextCall(cont, default, True)
        return resume(vm, body, None, call)
    if default is MISSING:
        return vm.call_next(iterator, cont)
    value = vm.next_or_missing(iterator)
    vm.give(default if value is MISSING else value, cont)


@suspending_rule(type(iter([])).__dict__["__next__"])
def _next_of_list(vm: VM, cont: Continuation | None, iterator: object, /) -> None:
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
def _length_hint(vm: VM, value: object, /, *default: object) -> Any:
    """Of an iterator from outside that stands there by its items to come, how many they are becomes a fact."""
    if is_known_ahead(vm.heap, value):
        tracker = vm.heap.by_standin[id(value)]
        if not hasattr(type(tracker.original), "__length_hint__"):  # nor does None say how long it is
            return vm.native_unhooked(operator.length_hint, (None, *default))
        expose_peekable(vm.heap, tracker)
    else:
        vm.heap.expose_length(value)
        vm.guard_special_methods(value)
    return LISTED


@rule(bool)
def _bool(vm: VM, /, *values: object) -> Any:
    if len(values) != 1:
        return vm.native_unhooked(bool, values)
    value = values[0]
    if type(value) in SYMBOLIC:
        return symbolic_numbers.as_bool(vm, value)
    symbol = truth_as_symbol(vm, value) if type(value) is FakeTensor else None
    return operators.truth(vm, value) if symbol is None else symbol


def _body(vm: VM, generator: object) -> Any:
    body = vm.generators.of(generator)
    if body is None:
        raise Break("SB014", f"a {type(generator).__name__} from outside")
    return body


@suspending_rule(types.GeneratorType.send, types.CoroutineType.send, AWAITED.send)
def _send(vm: VM, cont: Continuation | None, generator: object, value: object, /) -> None:
    resume(vm, _body(vm, generator), value, NextCall(cont))


@suspending_rule(types.GeneratorType.throw, types.CoroutineType.throw, AWAITED.throw)
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
    throw(vm, body, exc, NextCall(cont))


@rule(sys.exc_info)
def _exc_info(vm: VM) -> Any:
    exc = handled_exception(vm)
    return (None, None, None) if exc is None else (type(exc), exc, vm.traceback_of(exc))


suspending_rule(types.GeneratorType.__next__, AWAITED.__next__)(
    lambda vm, cont, generator, /: resume(vm, _body(vm, generator), None, NextCall(cont)))
rule(types.GeneratorType.__iter__, AWAITED.__iter__)(lambda vm, generator, /: generator)
suspending_rule(types.GeneratorType.close, types.CoroutineType.close, AWAITED.close)(
    lambda vm, cont, generator, /: close(vm, _body(vm, generator), cont))
rule(types.CoroutineType.__await__)(
    lambda vm, coroutine, /: vm.native_unhooked(types.CoroutineType.__await__, (coroutine,)))
rule(sys.exception)(handled_exception)
