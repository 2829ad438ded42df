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
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.objects import operators
from stator.interp.rule_registry import LISTED, rule
from stator.interp.vm import VM

# ---------------------------------------------------------------------- dicts, one key at a time


@rule(dict.get, unasked=True)
def _dict_get(vm: VM, mapping: Any, key: Any, /, *default: Any) -> Any:
    key = specialise_deep(vm, key)
    if len(default) > 1 or type(key) not in operators.SCALARS:
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
def _set_default(vm: VM, mapping: Any, key: Any, default: Any = None, /) -> Any:
    """Whether the key is there is a fact; the others are none."""
    if type(mapping) is not dict or type(key) not in (str, int):
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


# ---------------------------------------------------------------------- lists, at their end


@rule(list.append, unread=True, unasked=True)
def _append(vm: VM, items: Any, item: Any, /) -> Any:
    """Nothing of the list is looked at: how long it is, or what it holds, is no fact."""
    if type(items) is not list:
        return LISTED
    vm.heap.note_write(items)
    items.append(item)
    return None


@rule(object.__reduce_ex__, object.__reduce__, object.__getstate__, object.__dir__)
def _taken_apart(vm: VM, callee: Any, obj: Any, /, *protocol: Any) -> Any:
    tracker = vm.heap.tracker_of(obj)
    if tracker is not None:
        if tracker.shape in (ShadowKind.OPAQUE, ShadowKind.TENSOR):
            raise Break("SB005", f"{callee.__name__} of a {type(obj).__name__}")
        if tracker.shape is ShadowKind.UPCOMING:
            raise Break("SB014", f"a {type(tracker.original).__name__} from outside, copied or asked")
        vm.heap.expose(obj)
        vm.heap.expose_attributes(tracker)
        if tracker.initial_slots is not None:
            expose_slots(vm, tracker)
    return vm.native(callee, (obj, *protocol))


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


# ---------------------------------------------------------------------- memoryviews


@rule(memoryview)
def _memoryview(vm: VM, object: Any) -> Any:
    if type(object) is numpy.ndarray:
        raise Break("SB005", "a memoryview of an array")  # writes to it would not be noticed
    return LISTED


@rule(memoryview.release, memoryview.__exit__)
def _release(vm: VM, callee: Any, view: Any, /, *error: Any) -> Any:
    if vm.heap.tracker_of(view) is not None:
        raise Break("SB006", "a memoryview from outside is released")
    return vm.native(callee, (view, *error))
