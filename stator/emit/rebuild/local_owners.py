"""Keep objects of dead locals alive.   a local that nothing reads again  ->  an expression that holds the same objects

A local of a suspended frame lives until its frame ends or overwrites it: native code may know an object by its address
or a weak reference.  A view is represented by any tensor of its storage, so that no local adds an output to the graph.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.emit.services import Rebuilder
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict, raw_members, slot_values
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.frame import UNBOUND, with_locals
from stator.shapes.symbolic_values import GRAPH_SCALARS, SYMBOLIC
from stator.source import Local

_PARTS = 256  # of one local, that are looked at
_HELD_ELSEWHERE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, torch.nn.Module)
_WHOLE = frozenset({FakeTensor, Box}) | SYMBOLIC | GRAPH_SCALARS
_EMPTY_CELL = types.CellType()


class Owners:
    """Expressions that hold what values of the trace hold, once the residual's other values are built."""

    def __init__(self, build: Rebuilder) -> None:
        self.build = build
        self._storages: dict[int, Any] | None = None  # that are made real -> the output or the source of a tensor there

    def kept_alive(self, value: object) -> str:
        """The value of a dead slot."""
        if type(value) is Box or id(value) in self.build.heap.by_standin or id(value) in self.build.memo:
            return self._owner(value) or self._unbound()
        found = dict.fromkeys(self._owners(value))
        return next(iter(found)) if len(found) == 1 else f"({', '.join(found)})" if found else self._unbound()

    def held(self, values: dict[str, Any]) -> str:
        """A dict of locals of a frame that is over."""
        texts = {name: self.kept_alive(value) for name, value in values.items()}
        return "{" + ", ".join([f"{name!r}: {text}" for name, text in texts.items() if text != self._unbound()]) + "}"

    def hold_locals(self) -> None:
        """Let tracebacks of rebuilt exceptions hold the locals of their frames."""
        for name, frames in self.build.raised.items():
            texts = {number: self.held(values) for number, values in frames.items()}
            held = ", ".join([f"{number}: {text}" for number, text in texts.items() if text != "{}"])
            if held:
                copy = self.build.writer.constant(with_locals)
                self.build.writer.line(f"{name}.__traceback__ = {copy}({name}.__traceback__, {{{held}}})")

    def _unbound(self) -> str:
        return self.build.writer.constant(UNBOUND, "unbound")

    def _owners(self, value: object) -> Iterator[str]:
        """Expressions that hold the parts of a fresh value that are made real."""
        todo, seen = collections.deque([value]), {id(value)}
        while todo and len(seen) < _PARTS:
            part = todo.popleft()
            owner = self._owner(part)
            if owner is not None:
                yield owner
            elif type(part) not in _WHOLE:
                parts = self._contents(part) if type(part) is numpy.ndarray else parts_of(part)
                inner = [each for each in parts if type(each) not in CONSTANT_TYPES and id(each) not in seen]
                seen.update(map(id, inner))
                todo += inner

    def _contents(self, array: numpy.ndarray) -> list[Any]:
        """The array whose memory an array shows, and the tensor that is its contents."""
        arrays = self.build.heap.arrays
        root = arrays.root_of(array)
        return [root, *arrays.backed.get(id(root), ())[1:]]

    def _owner(self, part: object) -> str | None:
        build = self.build
        if type(part) is Box and part.forced:
            part = part.value
        if type(part) is Box:
            source, original = part.source(), part.raw
        else:
            if type(part) in CONSTANT_TYPES:
                return None
            tracker = build.heap.by_standin.get(id(part))
            if tracker is None:
                return self._owner_of_memory(part) if type(part) is FakeTensor else build.memo.get(id(part))
            source, original = tracker.source, tracker.original
        if type(source) is not Local and is_a(original, _HELD_ELSEWHERE):
            return None
        return None if original is UNBOUND or type(original) in CONSTANT_TYPES else build.outside(source)

    def _owner_of_memory(self, fake: FakeTensor) -> str | None:
        build, memory_of = self.build, self.build.recorder.propagation.memory_behind
        if self._storages is None:
            tracked = [build.heap.by_standin.get(id(each.fake)) for each in build.recorder.inputs]
            self._storages = {memory_of(each.standin): each.source for each in tracked
                              if each is not None and type(each.standin) is FakeTensor}
            self._storages.update((memory_of(each), number) for number, each in enumerate(build.outputs)
                                  if type(each) is FakeTensor)
            self._storages.pop(0, None)
        owner = self._storages.get(memory_of(fake))
        return f"out[{owner}]" if type(owner) is int else None if owner is None else build.outside(owner)


def parts_of(value: Any) -> list[Any]:
    cls = type(value)
    if cls is dict:
        return [*value.keys(), *value.values()]
    if cls in (list, tuple, set, frozenset, collections.deque):
        return list(raw_members(value))
    if cls is types.CellType:
        return [value.cell_contents] if value != _EMPTY_CELL else []
    if cls is types.FunctionType:
        return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    if cls is types.MethodType:
        return [value.__func__, value.__self__]
    if cls is functools.partial:
        return [value.func, value.args, value.keywords]
    if is_a(value, _HELD_ELSEWHERE[:-1]):  # a module that was made inside holds its hooks and parameters
        return []
    found: list[Any] = list((instance_dict(value) or {}).values())
    for base in (dict, list, tuple, set, frozenset, collections.deque):
        if is_a(value, base):
            found += [*dict.keys(value), *dict.values(value)] if base is dict else list(raw_members(value))
            break
    return found + list(slot_values(value).values())
