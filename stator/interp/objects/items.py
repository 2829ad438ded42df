"""Subscripts and membership.   obj[key], obj[key] = value, del obj[key], item in obj  ->  its method, or the heap"""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator._core import asks_keys
from stator.breaks import Break
from stator.code.opcodes_since_314 import NOT_A_CONTAINER
from stator.guards.guard import Kind
from stator.heap.pure_readers import default_factory_of, mapping_behind
from stator.heap.tracker import Box, ShadowKind
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.arrays.array_tensors import index_key
from stator.interp.arrays.native_numpy import plain_key, run_on_arrays
from stator.interp.frame import Continuation, Frame, Raised, raising
from stator.interp.iteration import contained
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.numbers.symbolic_numbers import knows_item
from stator.interp.objects import operators
from stator.interp.objects.assignment import DISCARD
from stator.interp.objects.attributes import read_dict
from stator.interp.services import VM
from stator.interp.tensors.tensor_items import get_tensor_item, set_tensor_item, tensor_key
from stator.interp.torch_function_protocol import own_method
from stator.shapes.symbolic_values import SYMBOLIC, has_unbacked, holds_symbol, specialise

FEW_KEYS = 16
_NUMBERS = frozenset({int, bool, float})
_KEYS = _NUMBERS | {str, bytes, type(None)}
_RAW_SETS: dict[bool, Any] = {True: set.__iter__, False: frozenset.__iter__}


def get_item(vm: VM, obj: Any, key: Any, cont: Any = None, own: bool = True) -> None:
    """`own`: a method that a tensor subclass has for it comes first (not so for Tensor.__getitem__ itself)."""
    if type(obj) is types.MappingProxyType:  # asks its mapping
        obj = mapping_behind(obj)
    cls = type(obj)
    if cls is FakeTensor and own:
        vm.recorder.slots_used.add("__getitem__")
    if cls is FakeTensor and (vm.modes.active or vm.recorder.classes or vm.modes.patched):
        if own and (method := own_method(vm, obj, "__getitem__")) is not None:
            return operators.call_slot(vm, method, (obj, key), cont)
        if vm.modes.active or vm.concerned((obj, key)):
            return vm.give(vm.ask_modes(operator.getitem, (obj, key)), cont)
    if vm.heap.unread_met and cls is not ndarray:
        key = plain_key(vm, key)
    if type(key) in symbolic_numbers.INDEXES:
        parts: Any = key if type(key) is tuple else (key,)
        if vm.modes.indexes_stay_tensors and cls is FakeTensor and (
                type(key) is FakeTensor or type(key) is tuple and all(type(part) in (FakeTensor, int) for part in key)):
            parts = [part if type(part) is FakeTensor else vm.torch_call(
                torch.full, ((), part), {"dtype": torch.int64, "device": obj.device}) for part in parts]
            return vm.give(vm.torch_call(torch.ops.aten.index.Tensor, (obj, parts), None), cont)
        key = tensor_key(vm, key) if cls is FakeTensor else symbolic_numbers.index_key(vm, obj, key)
    if cls is list or cls is tuple:
        if type(key) is int:
            if not knows_item(vm, obj, key):
                vm.heap.expose_length(obj)
            value = raising(operator.getitem, obj, key)
            return vm.give(value.force() if type(value) is Box else value, cont)
    elif cls is dict:
        if (type(key) is str or type(key) is int) and not asks_keys(obj, key):
            value = read_dict(vm, obj, key)
            if value is MISSING:
                raise Raised(KeyError(key))
            return vm.give(value, cont)
    elif cls is FakeTensor:
        return vm.give(get_tensor_item(vm, obj, index_key(vm, key)), cont)
    elif cls is ndarray:
        return vm.give(run_on_arrays(vm, operator.getitem, (obj, key)), cont)
    elif is_a(obj, type):
        return _subscript_class(vm, obj, key, cont)
    method = find(vm, cls, "__getitem__")
    if method is MISSING:
        raise Raised(TypeError(f"'{name_in_errors(cls)}' object is not subscriptable"))
    if operators.is_python_level(method):
        return operators.call_slot(vm, method, (obj, key), cont)
    vm.admit_slot(method, (obj, key))
    get_item_native(vm, obj, key, cont)


def get_item_native(vm: VM, obj: object, key: object, cont: Continuation | None) -> None:
    """A C `__getitem__` on a stand-in; what it hands out may still be boxed."""
    heap = vm.heap
    heap.expose_deep(key)
    key = symbolic_numbers.specialise_deep(vm, key)
    operators.refuse_opaque(vm, obj)
    tracker = heap.by_standin.get(id(obj))
    if is_a(obj, dict):
        find(vm, type(obj), "__missing__")  # a guard: C code may call it
    if is_a(obj, collections.defaultdict) and type(
            default_factory_of(obj)) is functools._lru_cache_wrapper:  # type: ignore[arg-type]
        raise Break("SB013", "a cache that makes the values of a defaultdict")
    if tracker is not None:
        if tracker.shape is ShadowKind.DICT:
            if type(key) in operators.SCALARS and not asks_keys(obj, key):
                if key not in tracker.initial:
                    heap.guard(tracker.source, Kind.ABSENT, key)
            else:
                heap.expose(obj)
        elif tracker.shape is not ShadowKind.VALUE:
            heap.expose(obj)
    vm.give(vm.native(operator.getitem, (obj, key)), cont)


def _subscript_class(vm: VM, cls: type, key: object, cont: Continuation | None) -> None:
    """`cls[key]`: the metaclass's `__getitem__`, else `__class_getitem__`."""
    method = find(vm, type(cls), "__getitem__")
    if method is not MISSING:
        return vm.call(method, (cls, key), {}, cont)
    hook = find(vm, cls, "__class_getitem__")
    if hook is MISSING and cls is type:
        return vm.give(vm.native(operator.getitem, (cls, key)), cont)
    bound = None if hook is MISSING else vm.sync(lambda: vm.load_attr(cls, "__class_getitem__"))
    if bound is None:  # None in a class hides what it would inherit
        raise Raised(TypeError(f"type '{name_in_errors(cls)}' is not subscriptable"))
    if type(hook) is types.ClassMethodDescriptorType:  # an alias is compared, hashed and shown by C code
        key = symbolic_numbers.specialise_deep(vm, key)
    vm.call(bound, (key,), {}, cont)


def set_item(vm: VM, obj: Any, key: Any, value: Any, cont: Continuation | None = DISCARD, own: bool = True) -> None:
    cls = type(obj)
    vm.heap.note_write(obj)
    if cls is FakeTensor and own:
        vm.recorder.slots_used.add("__setitem__")
    if cls is FakeTensor and (vm.modes.active or vm.recorder.classes or vm.modes.patched):
        if own and (method := own_method(vm, obj, "__setitem__")) is not None:
            return operators.call_slot(vm, method, (obj, key, value), cont)
        if vm.modes.active or vm.concerned((obj, key, value)):
            vm.ask_modes(operator.setitem, (obj, key, value))
            return vm.give(None, cont)
    if vm.heap.unread_met and cls is not ndarray:
        key = plain_key(vm, key)
    if type(key) in symbolic_numbers.INDEXES:
        key = tensor_key(vm, key) if cls is FakeTensor else symbolic_numbers.index_key(vm, obj, key)
    if cls is dict and (type(key) is str or type(key) is int) and not asks_keys(obj, key):
        obj[key] = value
        return vm.give(None, cont)
    if cls is FakeTensor:
        set_tensor_item(vm, obj, index_key(vm, key), value)
        return vm.give(None, cont)
    if cls is ndarray:
        run_on_arrays(vm, operator.setitem, (obj, key, value))
        return vm.give(None, cont)
    _change_item(vm, operator.setitem, obj, key, (value,), cont)


def delete_item(vm: VM, obj: object, key: object, cont: Continuation | None = DISCARD) -> None:
    if type(key) in symbolic_numbers.INDEXES:
        key = symbolic_numbers.index_key(vm, obj, key)
    _change_item(vm, operator.delitem, obj, key, (), cont)


def _change_item(vm: VM, function: Callable[..., Any], obj: object, key: object, values: tuple[Any, ...],
                 cont: Continuation | None) -> None:
    """Assign or delete by the method of the class."""
    method = find(vm, type(obj), f"__{function.__name__}__")
    if method is MISSING:
        vm.native_unhooked(function, (obj, key, *values))  # raises what eager raises
        raise AssertionError(f"an item was changed without a method for {function.__name__}")
    if operators.is_python_level(method):
        return operators.call_slot(vm, method, (obj, key, *values), cont)
    vm.heap.expose_deep(key)
    key = symbolic_numbers.specialise_deep(vm, key)
    if values:
        vm.heap.expose_length(obj)
    for each in (*values, obj) if not values or type(key) is slice else ():
        vm.heap.expose(each)
    operators.refuse_opaque(vm, obj)
    vm.admit_slot(method, (obj, key, *values))
    vm.native(function, (obj, key, *values))
    vm.give(None, cont)


class AsBool(Continuation):
    """`in`: whatever `__contains__` answers becomes a bool, perhaps inverted."""

    __slots__ = ("invert", "cont")

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(operators.truth(vm, value) != self.invert, self.cont)


def contains(vm: VM, container: Any, item: Any, invert: bool, cont: Continuation | None = None) -> None:
    if type(container) is types.MappingProxyType:  # asks its mapping
        container = mapping_behind(container)
    cls = type(container)
    heap = vm.heap
    if cls in symbolic_numbers.SEQUENCES and holds_symbol((container, item)):
        return vm.give(_search(vm, container, item) != invert, cont)
    if type(item) in SYMBOLIC:
        if type(item) is torch.SymInt and is_a(container, (dict, set, frozenset)) \
                and differs_from_all(vm, container, item):
            return vm.give(invert, cont)
        item = specialise(item)
    if cls is dict and type(item) in operators.SCALARS and not asks_keys(container, item):
        present = item in container
        tracker = heap.by_standin.get(id(container))
        if tracker is not None:
            heap.guard(tracker.source, Kind.PRESENT if item in tracker.initial else Kind.ABSENT, item)
        return vm.give(present != invert, cont)
    if cls is FakeTensor:
        if (own := own_method(vm, container, "__contains__")) is not None:
            return operators.call_slot(vm, own, (container, item), AsBool(invert, cont))
        raise Break("SB002", "`in` on a tensor")
    method = find(vm, cls, "__contains__")
    if method is None:
        raise Raised(TypeError(f"'{name_in_errors(cls)}' object is not a container"))
    if operators.is_python_level(method):
        return operators.call_slot(vm, method, (container, item), AsBool(invert, cont))
    if method is MISSING:
        text = NOT_A_CONTAINER.replace("'object'", f"'{name_in_errors(cls)}'")
        if not vm.is_iterable(container):
            raise Raised(TypeError(text))
        # An iterator stands behind what was found.
        return vm.call_own(contained, (container, item, not invert, iter, TypeError, text, next, contained), cont)
    tracker = heap.by_standin.get(id(container))
    if tracker is not None and tracker.shape is ShadowKind.SET:  # a search in a set does not depend on its order
        for member in tracker.initial:
            heap.expose_deep(member)
    elif cls is frozenset:
        for member in frozenset.__iter__(container):
            heap.expose_deep(member)
    else:
        heap.expose_deep(container)
    heap.expose_deep(item)
    if cls in symbolic_numbers.KEY_VIEWS or is_a(container, (set, frozenset, dict)):
        item = symbolic_numbers.specialise_deep(vm, item)
    operators.refuse_opaque(vm, container)
    vm.admit_slot(method, (container, item))
    if type(item) is FakeTensor and cls in symbolic_numbers.KEY_VIEWS:
        container = mapping_behind(container)
    if type(item) is FakeTensor and is_a(container, (set, frozenset, dict)):
        return vm.give(contains_tensor(vm, container, item) != invert, cont)
    if type(item) is FakeTensor and is_a(container, (bytes, bytearray)):
        raise Break("SB003", "a tensor looked for among bytes")
    if type(item) is FakeTensor and not is_a(container, str) \
            or cls in (list, tuple) and any(type(x) is FakeTensor for x in container):
        return vm.give(_search(vm, container, item) != invert, cont)
    vm.give(operators.run_operator(vm, operator.contains, container, item) != invert, cont)


def differs_from_all(vm: VM, table: Any, number: torch.SymInt) -> bool:
    """Whether a symbolic number is none of the few keys of a table; only that is guarded."""
    method = find(vm, type(table), "__contains__")
    if operators.is_python_level(method) or vm.heap.is_opaque(table) or has_unbacked(number):
        return False
    vm.heap.expose_deep(table)
    keys = list(dict.__iter__(table) if is_a(table, dict) else _RAW_SETS[is_a(table, set)](table))
    if len(keys) > FEW_KEYS or not all(type(key) in _KEYS for key in keys):
        return False
    return not any(bool(number == (int(key) if type(key) is bool else key)) for key in keys if type(key) in _NUMBERS)


def contains_tensor(vm: VM, container: Any, item: object) -> bool:
    """A tensor hashes and (in a hash table) compares by identity; that it is another one than the rest is a fact."""
    heap = vm.heap
    mine = heap.by_standin.get(id(item))
    members = list(dict.__iter__(container) if is_a(container, dict) else _RAW_SETS[is_a(container, set)](container))
    found = any(member is item for member in members)
    if mine is not None and not found:
        for member in members:
            other = heap.by_standin.get(id(member))
            if other is None or other.shape is not ShadowKind.TENSOR:
                continue
            if is_a(mine.original, torch.nn.Parameter) and is_a(other.original, torch.nn.Parameter):
                heap.guard(mine.source, Kind.ID, mine.original)  # one fact per parameter, not one per pair
                heap.guard(other.source, Kind.ID, other.original)
            else:
                heap.guard(mine.source, Kind.NOT_ALIAS, other.source)
    return found


def _search(vm: VM, container: object, item: object) -> bool:
    return any(each is item or operators.truth(vm, vm.sync(lambda: operators.compare(vm, "==", each, item)))  # noqa: B023
               for each in vm.collect(container))
