"""Has a stretch of the trace changed anything?   MutationCheck(vm); interpret; witness.changed()

A branch is captured only if neither of its ways changes anything but the frame it is in.  `Unwatched`: an object that
could change without being seen to.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import operator
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.guards.guard import is_constant, value_key
from stator.heap.adopt.outside_arrays import SCALARS
from stator.heap.outside_changes import changed_trackers
from stator.heap.raw_access import (
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    instance_dict,
    new_shell,
    raw_members,
    slot_members,
)
from stator.heap.tracker import Box, ShadowKind
from stator.host.value_kinds import is_a, module_of
from stator.interp.frame import SavedExc, outward
from stator.interp.mechanisms import fingerprints
from stator.interp.services import VM
from stator.shapes.symbolic_values import SYMBOLIC

_ATOMS = CONSTANT_TYPES | IDENTITY_TYPES | SYMBOLIC | SCALARS
_COUNTED: frozenset[type] = frozenset(type(iter(each)) for each in (  # type: ignore[var-annotated]
    [], (), range(0), range(1 << 70), "", b"", {}, {}.values(), {}.items(), set(), collections.deque())) | {
    type(reversed([])), type(reversed({})), reversed}
# Iterators that cannot advance without advancing another.
_DRIVING = frozenset({zip, enumerate, map, filter, itertools.chain, itertools.islice, itertools.starmap,
                      itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.pairwise})
_GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_HOLDERS = frozenset({types.MethodType, functools.partial, slice, types.MappingProxyType, types.CellType,
                      types.MethodWrapperType, torch.Size})
_EMPTY = types.CellType()
_SEEN_WHOLE = frozenset({
    ShadowKind.LIST, ShadowKind.DICT, ShadowKind.SET, ShadowKind.OBJECT,
    ShadowKind.CELL, ShadowKind.TUPLE, ShadowKind.VALUE,
})


class Unwatched(Exception):
    """An object whose changes cannot be seen."""


class MutationCheck:
    """All objects that the program could reach at one moment of a trace."""

    def __init__(self, vm: VM) -> None:
        self.vm = vm
        self.writes = fingerprints(vm)
        self.objects: dict[int, tuple[Any, list[Any]]] = {}
        todo: list[Any] = [tracker.standin for tracker in vm.heap.trackers if tracker.shape is not ShadowKind.OPAQUE]
        for frame in outward(vm.frame):
            todo += [*frame.locals, *frame.stack]
        for scope in vm.heap.scopes.values():
            todo += scope.overlay.values()
        while todo:
            value = todo.pop()
            if id(value) not in self.objects:
                parts = parts_of(vm, value)
                if parts is not None:
                    self.objects[id(value)] = (value, parts)
                    todo += parts

    def changed(self) -> str:
        """Description of a change; empty where nothing changed."""
        if fingerprints(self.vm) != self.writes:
            return "it changes something outside"
        for value, parts in self.objects.values():
            now = parts_of(self.vm, value) or []
            if len(now) != len(parts) or not all(map(_same, parts, now)):
                return f"it changes a {type(value).__name__} from before the branch"
        return ""


def _same(before: object, now: object) -> bool:
    if before is now or type(before) is int and type(now) is int and before == now:
        return True
    return type(before) is Box and before.is_current(now)


def parts_of(vm: VM, value: Any) -> list[Any] | None:
    """Parts of an object, in a fixed order; None for an object that cannot change."""
    cls = type(value)
    if cls is types.ModuleType and id(value) in vm.fresh:
        return _items(value.__dict__)
    if cls in _ATOMS or cls is Box or is_a(value, (type, types.ModuleType)) or module_of(cls).startswith("stator."):
        return [value.previous, value.current] if cls is SavedExc else None
    if cls is FakeTensor:
        with torch._C.DisableTorchFunction():
            return [vm.recorder.version_of(value)]
    if cls is types.FunctionType:
        return [*(value.__closure__ or ()), *_items(value.__dict__)] if id(value) in vm.fresh else None
    if cls is types.CellType:
        return [value.cell_contents] if value != _EMPTY else [None, None]
    if cls in _COUNTED:
        return [operator.length_hint(value), *gc.get_referents(value)]
    if cls in _HOLDERS or cls in _DRIVING:
        return gc.get_referents(value)
    if cls in _GENERATORS:
        return _generator_parts(vm, value)
    return _object_parts(vm, value, cls)


def _generator_parts(vm: VM, value: object) -> list[Any] | None:
    body = dict.get(vm.generators, id(value))
    if body is None:
        if vm.heap.is_opaque(value):
            return None  # advancing it breaks
        raise Unwatched(type(value).__name__)
    frame = body.frame
    return [None] if frame is None else [frame.ip, *frame.locals, *frame.stack]


def _object_parts(vm: VM, value: Any, cls: type) -> list[Any] | None:
    parts: list[Any] = []
    if is_a(value, (list, tuple, set, frozenset, collections.deque)):
        parts += raw_members(value)
    elif is_a(value, dict):
        parts += _items(value)
    elif is_a(value, (bytearray, BaseException)) or new_shell(cls) is None:
        if not vm.heap.is_opaque(value) and not vm.is_constant_object(value):
            raise Unwatched(cls.__name__)
        return None
    own = instance_dict(value)
    if own:
        parts += _items(own)
    for member in slot_members(cls):
        try:
            parts.append(member.__get__(value))
        except AttributeError:
            parts.append(None)
    return parts


def _items(pairs: dict[Any, Any]) -> list[Any]:
    return [part for pair in dict.items(pairs) for part in pair]


@dataclass
class ChangedState:
    """Outside objects that the program has changed, with everything that it put there."""

    key: tuple[Any, ...]
    reached: set[int]  # the records of changed objects, and of those that hang on something new
    held: list[Any]  # the ids in the key stay theirs


def changed_state(vm: VM) -> ChangedState | None:
    """The state of a trace, to be compared with that of another moment; None where it is unknown."""
    if any(body.adopted is not None for body in dict.values(vm.generators)):
        return None
    with torch._C.DisableTorchFunction():
        found = changed_trackers(vm.heap)
        if any(tracker.shape not in _SEEN_WHOLE for tracker in found):
            return None
        overlays = [scope.overlay for scope in vm.heap.scopes.values() if scope.overlay]
        known: dict[int, tuple[Any, ...]] = {}
        held: list[Any] = []
        todo = [tracker.standin for tracker in found] + overlays
        first = {id(each) for each in todo}
        reached: set[int] = set()
        try:
            while todo:
                value = todo.pop()
                if id(value) in known:
                    continue
                tracker = vm.heap.by_standin.get(id(value))
                if tracker is not None:
                    reached.add(id(tracker))
                    if id(value) not in first:
                        continue
                parts = parts_of(vm, value)
                if parts is not None:  # what cannot change is known by what it is a part of
                    known[id(value)] = tuple([
                        value_key(part) if type(part) in CONSTANT_TYPES and is_constant(part) else id(part)
                        for part in parts])
                    held.append((value, parts))
                    todo += parts
        except Unwatched:
            return None
    return ChangedState(tuple(known.items()), reached, held)
