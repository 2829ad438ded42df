"""item in container.   container, item  ->  a bool, by identity first and equality then, as C does"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.pure_readers import mapping_behind
from stator.heap.tracker import ShadowKind
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.iteration.polyfills import contained
from stator.interp.lookup import MISSING, find
from stator.interp.numbers import symbolic_numbers
from stator.interp.objects.operators import (
    SCALARS,
    call_slot,
    compare,
    is_python_level,
    refuse_opaque,
    run_operator,
    truth,
)
from stator.interp.services import VM
from stator.interp.torch_function_protocol import own_method
from stator.shapes.symbolic_values import SYMBOLIC, has_unbacked, specialise


class AsBool(Continuation):
    """`in`: whatever `__contains__` answers becomes a bool, perhaps inverted."""

    __slots__ = ("invert", "cont")

    def __init__(self, invert: bool, cont: Continuation | None) -> None:
        self.invert, self.cont = invert, cont

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        vm.give(truth(vm, value) != self.invert, self.cont)


def contains(vm: VM, container: Any, item: Any, invert: bool, cont: Any = None) -> None:
    if type(container) is types.MappingProxyType:  # asks its mapping
        container = mapping_behind(container)
    cls = type(container)
    heap = vm.heap
    if cls in symbolic_numbers.SEQUENCES and symbolic_numbers.holds_symbol((container, item)):
        return vm.give(_search(vm, container, item) != invert, cont)
    if type(item) in SYMBOLIC:
        if type(item) is torch.SymInt and is_a(container, (dict, set, frozenset)) \
                and differs_from_all(vm, container, item):
            return vm.give(invert, cont)
        item = specialise(item)
    if cls is dict and type(item) in SCALARS:
        present = item in container
        tracker = heap.by_standin.get(id(container))
        if tracker is not None:
            heap.guard(tracker.source, Kind.PRESENT if item in tracker.initial else Kind.ABSENT, item)
        return vm.give(present != invert, cont)
    if cls is FakeTensor:
        if (own := own_method(vm, container, "__contains__")) is not None:
            return call_slot(vm, own, (container, item), AsBool(invert, cont))
        raise Break("SB002", "`in` on a tensor")
    method = find(vm, cls, "__contains__")
    if method is None:
        raise Raised(TypeError(f"'{name_in_errors(cls)}' object is not a container"))
    if is_python_level(method):
        return call_slot(vm, method, (container, item), AsBool(invert, cont))
    if method is MISSING:
        text = f"argument of type '{name_in_errors(cls)}' is not iterable"
        if not vm.is_iterable(container):
            raise Raised(TypeError(text))
        # An iterator stands behind what was found.
        return vm.call_own(contained, (container, item, not invert, iter, TypeError, text), cont)
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
    refuse_opaque(vm, container)
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
    vm.give(run_operator(vm, operator.contains, container, item) != invert, cont)


def differs_from_all(vm: VM, table: Any, number: torch.SymInt) -> bool:
    """Whether a number left open is none of the few keys of a table; only that is guarded, not which number it is."""
    if is_python_level(find(vm, type(table), "__contains__")) or vm.heap.is_opaque(table) or has_unbacked(number):
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


FEW_KEYS = 16
_NUMBERS = frozenset({int, bool, float})
_KEYS = _NUMBERS | {str, bytes, type(None)}
_RAW_SETS: dict[bool, Any] = {True: set.__iter__, False: frozenset.__iter__}


def _search(vm: VM, container: object, item: object) -> bool:
    for candidate in vm.collect(container):
        if candidate is item or truth(vm, vm.sync(lambda: compare(vm, "==", candidate, item))):  # noqa: B023
            return True
    return False
