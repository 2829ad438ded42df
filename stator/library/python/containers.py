"""Rules for containers read one key at a time, and for objects taken apart."""

from __future__ import annotations

import collections
import types
from typing import Any

import numpy

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.blank_instances import slot_members
from stator.heap.box import Box
from stator.heap.identity_facts import note_compared
from stator.heap.pure_readers import mapping_behind
from stator.heap.tracker import Shape, VariableTracker
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.objects import operators
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

# ---------------------------------------------------------------------- dicts, one key at a time


@rule(dict.get)
def _dict_get(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) > 1:
        args = (args[0], specialise_deep(vm, args[1]), *args[2:])
    mapping, key = args[0], args[1] if len(args) > 1 else None
    if len(args) not in (2, 3) or type(key) not in operators.SCALARS:
        vm.heap.expose(mapping)
        vm.heap.expose_deep(key)
        note_compared(vm.heap, args[:2])
        return vm.give(vm.native(dict.get, args), cont)
    tracker = vm.heap.tracker_of(mapping)
    if tracker is not None and key not in tracker.initial:
        vm.heap.guard(tracker.source, Kind.ABSENT, key)
    value = dict.get(mapping, *args[1:])
    vm.give(value.force() if type(value) is Box else value, cont)


@rule(dict.setdefault)
def _set_default(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    """Whether the key is there is a fact; the others are none."""
    if len(args) not in (2, 3) or kwargs or type(args[0]) is not dict or type(args[1]) not in (str, int):
        return vm.call_listed(dict.setdefault, dict.setdefault, None, args, kwargs, cont)
    mapping, key = args[0], args[1]
    if key in mapping:
        return _dict_get(vm, (mapping, key), {}, cont)
    tracker = vm.heap.tracker_of(mapping)
    if tracker is not None and key not in tracker.initial:
        vm.heap.guard(tracker.source, Kind.ABSENT, key)
    vm.heap.note_write(mapping)
    mapping[key] = args[2] if len(args) == 3 else None
    vm.give(mapping[key], cont)


def _keys_rule(cls: type) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        tracker = vm.heap.tracker_of(args[0])
        if tracker is not None:
            if tracker.shape is Shape.OPAQUE:
                raise Break("SB005", f"keys of a {type(args[0]).__name__}")
            vm.heap.expose_keys(tracker)
        vm.give(cls.keys(args[0]), cont)  # type: ignore[attr-defined]
    return run


def _view_rule(method: Any) -> Any:
    """A view shows which keys there are, in which order, and the values."""
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        shown = mapping_behind(args[0]) if type(args[0]) is types.MappingProxyType else args[0]
        vm.heap.expose(shown)
        vm.give(vm.native_unhooked(method, args), cont)
    return run


for _mapping in (dict, collections.OrderedDict):
    rule(_mapping.keys, arity=(1,))(_keys_rule(_mapping))
    rule(_mapping.items, arity=(1,))(_view_rule(_mapping.items))
    rule(_mapping.values, arity=(1,))(_view_rule(_mapping.values))
for _method in (types.MappingProxyType.keys, types.MappingProxyType.items, types.MappingProxyType.values):
    rule(_method, arity=(1,))(_view_rule(_method))


# ---------------------------------------------------------------------- lists, at their end


@rule(list.append)
def _append(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    """Nothing of the list is looked at: how long it is, or what it holds, is no fact."""
    if len(args) != 2 or kwargs or type(args[0]) is not list:
        return vm.call_listed(list.append, list.append, None, args, kwargs, cont)
    vm.heap.note_write(args[0])
    args[0].append(args[1])
    vm.give(None, cont)


def expose_slots(vm: VM, tracker: VariableTracker) -> None:
    """C code will look at every slot: those that are empty, and what the others hold, become facts."""
    for member in slot_members(type(tracker.original)):
        try:
            value = member.__get__(tracker.standin)
        except AttributeError:
            if member not in (tracker.initial_slots or ()):
                vm.heap.guard(tracker.source, Kind.SLOT_EMPTY, (member.__name__, member.__objclass__))
            continue
        if type(value) is Box:
            member.__set__(tracker.standin, value.force())


def _exposing_rule(function: Any) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        tracker = vm.heap.tracker_of(args[0])
        if tracker is not None:
            if tracker.shape in (Shape.OPAQUE, Shape.TENSOR):
                raise Break("SB005", f"{function.__name__} of a {type(args[0]).__name__}")
            if tracker.shape is Shape.UPCOMING:
                raise Break("SB014", f"a {type(tracker.original).__name__} from outside, copied or asked")
            vm.heap.expose(args[0])
            vm.heap.expose_attributes(tracker)
            if tracker.initial_slots is not None:
                expose_slots(vm, tracker)
        vm.give(vm.native(function, args, kwargs), cont)
    return run


for _function in (object.__reduce_ex__, object.__reduce__, object.__getstate__, object.__dir__):
    rule(_function)(_exposing_rule(_function))


# ---------------------------------------------------------------------- memoryviews


@rule(memoryview)
def _memoryview(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if any(type(value) is numpy.ndarray for value in (*args, *kwargs.values())):
        raise Break("SB005", "a memoryview of an array")  # writes to it would not be noticed
    vm.call_listed(memoryview, memoryview, None, args, kwargs, cont)


def _release_rule(method: Any) -> Any:
    def release(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        if args and vm.heap.tracker_of(args[0]) is not None:
            raise Break("SB006", "a memoryview from outside is released")
        vm.give(vm.native(method, args, kwargs), cont)
    return release


rule(memoryview.release)(_release_rule(memoryview.release))
rule(memoryview.__exit__)(_release_rule(memoryview.__exit__))
