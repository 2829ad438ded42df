"""Expose values to C code.   a stand-in  ->  the same, with every element forced and guarded"""

from __future__ import annotations

import collections
import functools
import itertools
import re
import types
from collections.abc import Iterable
from typing import Any

import numpy
import torch

from stator import _hook
from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.adopt.outside_sets import expose_order
from stator.heap.iterators.peekable_iterators import expose_peekable
from stator.heap.pure_readers import DICT_VIEWS, arguments_of, fields_of, mapping_behind
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict, is_constant_tuple, raw_members, raw_store
from stator.heap.records import Records
from stator.heap.tracker import Box, ShadowKind, VariableTracker, referring
from stator.host.value_kinds import is_a, mro_of
from stator.shapes.symbolic_values import UNREAD, unread
from stator.source import DictOf


class Exposure(Records):
    """The part of a heap that shows its stand-ins to C code."""

    arrays: Any  # of the Heap that this is a part of
    constants: Any

    def expose(self, value: Any) -> None:
        """Force every direct element of an outside container, for C code that will look at them."""
        if type(value) is types.MappingProxyType:
            return self.expose(mapping_behind(value))
        if type(value) is numpy.ndarray:
            return self.arrays.expose(value)
        tracker = self.by_standin.get(id(value))
        if tracker is None and type(value) is frozenset:
            return self.constants.guard_order(value)
        if tracker is None or tracker.exposed:
            return
        tracker.exposed = True
        shape = tracker.shape
        if is_a(value, types.SimpleNamespace):
            self.expose_attributes(tracker)
        if shape is ShadowKind.PEEKABLE:
            tracker.exposed = False
            expose_peekable(self, tracker)  # type: ignore[arg-type]  # it is a Heap
        elif shape is ShadowKind.LIST:
            self.guard(tracker.source, Kind.LEN, len(tracker.initial))
            for i, item in enumerate(list(raw_members(value))):
                if type(item) is Box:
                    raw_store(value, i, item.force())
        elif shape is ShadowKind.TUPLE:
            for i, item in enumerate(tuple.__iter__(value)):
                if type(item) is Box:
                    _hook.tuple_set_item(value, i, item.force())
        elif shape is ShadowKind.DICT:
            self.expose_keys(tracker)
            store = store_of(type(value))
            for key, item in list(dict.items(value)):
                if type(item) is Box and type(key) in CONSTANT_TYPES:
                    store(value, key, item.force())
                elif type(item) is Box:  # hashing the key may run the program's code
                    self.services.run_native(store, (value, key, item.force()))
        elif shape is ShadowKind.SET:
            expose_order(self, tracker)  # type: ignore[arg-type]  # it is a Heap
        elif shape is ShadowKind.CELL:
            if value != _EMPTY and type(item := value.cell_contents) is Box:
                value.cell_contents = item.force()
        elif shape is ShadowKind.OPAQUE:
            if type(value) in UNREAD:
                raise unread(value)
            if is_a(value, BaseException):
                self._expose_exception(tracker)
            elif shows_memory(value):
                tracker.exposed = False
                raise Break("SB005", f"the contents of a {type(value).__name__} from outside, which may change")
            elif tracker.original is value:  # and no generator that runs in its place
                if holds_others(value):
                    tracker.exposed = False
                    raise Break("SB005", f"what a {type(value).__name__} from outside holds, which may change")
                self.guard(tracker.source, Kind.ID, value)

    def _expose_exception(self, tracker: VariableTracker) -> None:
        """C code will read the arguments (`str(e)`): they must be constants, and stay what they are."""
        args, fields = arguments_of(tracker.original), fields_of(tracker.original)
        if not is_constant_tuple(args) or not is_constant_tuple(fields):
            raise Break("SB005", "the text of an exception from outside, whose arguments are objects")
        self.guard_call(arguments_of, args, tracker.source)
        if fields:
            self.guard_call(fields_of, fields, tracker.source)

    def expose_keys(self, tracker: VariableTracker) -> None:
        """The whole key set of a dict was looked at: its length, its order, a failed search."""
        self.guard(tracker.source, Kind.KEYS, tuple(self.original_of(key) for key in tracker.initial))

    def expose_length(self, value: Any) -> None:
        if type(value) in _SHOWING:
            value = mapping_behind(value)
        tracker = self.by_standin.get(id(value))
        if tracker is not None and tracker.shape in (ShadowKind.LIST, ShadowKind.DICT):
            self.guard(tracker.source, Kind.LEN, len(tracker.initial))

    def note_namespace(self, own: dict[str, Any], obj: object, tracker: VariableTracker | None) -> None:
        """An instance dict was taken as a value: it must be that object's own dict wherever it goes."""
        if tracker is None:
            self.dicts.owners[id(own)] = referring(obj)
        else:
            self.sources[id(own)] = DictOf(tracker.source)
            if id(own) not in self.by_standin and tracker.initial_dict is not None:
                # Read key by key, like any dict from outside; no guard on names that are not read.
                part = VariableTracker(own, instance_dict(tracker.original), DictOf(tracker.source), ShadowKind.DICT)
                part.initial, part.part_of, part.type_guarded = tracker.initial_dict, tracker, True
                self.by_standin[id(own)] = part
                self.trackers.append(part)
        self.kept.append(own)

    def expose_attributes(self, tracker: VariableTracker) -> None:
        """Force the whole instance dict, for code that takes `obj.__dict__` as a value."""
        own = instance_dict(tracker.standin)
        if own is None or tracker.initial_dict is None:
            return
        self.guard(DictOf(tracker.source), Kind.KEYS, tuple(tracker.initial_dict))
        for name, item in own.items():
            if type(item) is Box:
                own[name] = item.force()

    def expose_deep(self, value: Any, seen: set[int] | None = None) -> None:
        """Force everything C code can reach from a value through builtin containers."""
        cls = type(value)
        if cls in CONSTANT_TYPES or cls in _ATOMS:
            return
        seen = set() if seen is None else seen
        if id(value) in seen:
            return
        seen.add(id(value))
        self.expose(value)
        parts: Iterable[Any] = ()
        if is_a(value, (list, tuple, set, frozenset, collections.deque)):
            parts = raw_members(value)
        elif is_a(value, dict):
            parts = itertools.chain.from_iterable(dict.items(value))
        elif cls is slice:
            parts = (value.start, value.stop, value.step)
        elif cls is types.CellType:
            parts = () if value == _EMPTY else (value.cell_contents,)
        elif cls in _SHOWING:
            parts = (mapping_behind(value),)
        elif is_a(value, types.SimpleNamespace):
            parts = (instance_dict(value) or {}).values()
        elif cls is functools.partial:
            parts = (*value.args, *value.keywords.values())
        elif is_a(value, BaseException):
            parts = (arguments_of(value), *([_members_of(value)] if is_a(value, BaseExceptionGroup) else []))
        for part in parts:
            self.expose_deep(part, seen)


def shows_memory(value: object) -> bool:
    """Whether C code can read bytes out of an object that stands for itself, and that may be other ones next time."""
    return type(value) is not bytes and _exports_memory(value)


def _exports_memory(value: Any) -> bool:
    if any(type(base.__dict__.get("__buffer__")) is types.FunctionType for base in mro_of(type(value))):
        return True  # the program's own, which is not asked
    try:
        memoryview(value).release()
    except (TypeError, BufferError, ValueError):
        return type(value) is memoryview
    return True


def holds_others(value: Any) -> bool:
    """Whether C code can take other objects out of one that stands for itself; iterators, tensors and buffers apart."""
    cls = type(value)
    if is_a(value, tuple):
        return not is_constant_tuple(tuple(tuple.__iter__(value)))
    if cls in _FIXED or is_a(value, torch.Tensor) or _exports_memory(value) or is_a(
            value, numpy.dtype) and value.fields is None and value.subdtype is None:  # such a type never changes
        return False
    names = {name for base in mro_of(cls)[:-1]
             for name in ("__iter__", "__getitem__", "__next__") if name in base.__dict__}
    return bool(names) and "__next__" not in names


def store_of(cls: type) -> Any:
    return (collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict).__setitem__


_FIXED = frozenset({re.Match})  # whose parts never change
_members_of = BaseExceptionGroup.__dict__["exceptions"].__get__
_EMPTY = types.CellType()
_SHOWING = frozenset({types.MappingProxyType, *DICT_VIEWS})
_ATOMS = {types.FunctionType, types.ModuleType, type, torch.Tensor}
