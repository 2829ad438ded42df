"""Calls of nn.Modules.   module(x)  ->  the frames of __call__ and _call_impl, standing at forward(x)

The first call of a trace is interpreted, and watched: which names it reads, and how its two frames stand when they call
`forward`.  Later modules with the same facts get the same guards and frames; other calls, with hooks, are interpreted.
"""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from stator import events
from stator.guards.guard import Guard, Kind
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box, ShadowKind
from stator.interp.frame import UNBOUND, Continuation, Frame
from stator.interp.lookup import MISSING, find
from stator.interp.machine import NOWHERE
from stator.interp.objects.attributes import is_unseen_table, reads_plainly
from stator.interp.services import VM
from stator.source import DictOf, Source

_Module = torch.nn.Module
_CALL = _Module.__dict__["__call__"]
_CALL_CODES = (_CALL.__code__, _Module.__dict__["_call_impl"].__code__)
_ABSENT = ("_compiled_call_impl", "_call_impl", "forward")  # in the module's own dict
_TABLES = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_GLOBAL_TABLES = ("_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks",
                  "_global_forward_pre_hooks")
# What the two functions read on their way to `forward`: where they read anything else, this file does not know them.
_TRACING = "_is_tracing" if "_is_tracing" in _CALL_CODES[1].co_names else "_get_tracing_state"  # until torch 2.14
_READ = frozenset({*_ABSENT, *_TABLES, *_GLOBAL_TABLES, "torch", "_C", _TRACING})
_READING = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME"})
_NAMED = ("self", "args", "kwargs", "forward_call")
_EMPTY = types.CellType()


@dataclass
class Stand:
    """How a frame stands when it calls the next function: instruction, and what its slots hold."""

    func: types.FunctionType
    unit: Any
    program: Any
    scope: Any
    ip: int
    slots: list[tuple[str, bool]]  # of each: "self", "args", ..., or "" for nothing; and whether in a cell
    step: int  # when it began its instruction, counted from the first of them

    def frame(self, values: dict[str, Any], steps: int) -> Frame:
        slots: list[Any] = []
        for name, in_cell in self.slots:
            if in_cell:
                slots.append(types.CellType(values[name]) if name else types.CellType())
            else:
                slots.append(values[name] if name else UNBOUND)
        values["kwargs"] = dict(values["kwargs"])  # each call makes a dict of its own
        made = Frame(self.unit, self.program, self.func, slots, self.scope)
        made.ip, made.step = self.ip, steps + self.step
        return made


class ModuleCalls:
    """The way to `forward`, as one trace has seen it."""

    def __init__(self) -> None:
        self.stands: tuple[Stand, Stand] | None = None
        self.steps = 0  # instructions of both
        self.tables: list[Any] = []  # of hooks for all modules
        self.scopes: list[Any] = []  # namespaces that were read
        self.classes: dict[type, Any] = {}  # -> forward, or None where the class is out of the ordinary
        self.guarded: set[int] = set()  # modules whose facts are guarded
        self.lines: dict[str, Any] = {}  # where each name is read
        self.enabled = True

    def enter(self, vm: VM, method: types.FunctionType, module: torch.nn.Module, args: tuple[Any, ...],
              kwargs: dict[str, Any] | None, cont: Continuation | None) -> Frame | None:
        """Call `method`, the `__call__` of a module's class; its frame, where it has one."""
        forward = None
        if method is _CALL and self.enabled and not (vm.modes.active or vm.recorder.classes or vm.heap.unread_met
                                                     or vm.heap.arrays.backed or events.lines_wanted()):
            if self.stands is None:
                return self.watch(vm, module, args, kwargs, cont)
            forward = self.forward_of(vm, module, args, kwargs)
        if forward is None:
            return begun(vm, method, module, args, kwargs, cont)
        bound = types.MethodType(forward, module)
        values = {"self": module, "args": tuple(args), "kwargs": dict(kwargs or ()), "forward_call": bound}
        outer, inner = (stand.frame(values, vm.steps) for stand in self.stands)  # type: ignore[union-attr]
        vm.push(outer, cont)
        vm.push(inner)
        if vm.depth == 1:
            vm.steps += self.steps
        vm.call(bound, values["args"], dict(values["kwargs"]))
        return outer

    def forward_of(self, vm: VM, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The function that the module's `__call__` ends in, all that leads there guarded; None: find it slowly."""
        if vm.depth == 1 and vm.steps <= vm.stop_step < vm.steps + self.steps or vm.classes.overlays:
            return None
        for scope in self.scopes:
            if scope.overlay or scope.shadow is not None:
                return None
        if any(self.tables):
            return None
        for value in (*args, *kwargs.values()) if kwargs else args:
            if type(value) is Box:
                return None
        cls = type(module)
        if cls not in self.classes:
            self.classes[cls] = self.forward_of_class(vm, cls)
            vm.lines.located = NOWHERE
        forward = self.classes[cls]
        return None if forward is None or not self.guard_module(vm, module) else forward

    def forward_of_class(self, vm: VM, cls: type) -> FunctionType | None:
        assert self.stands is not None
        self.stand_at(vm, "_compiled_call_impl")
        if id(cls) in vm.fresh or not reads_plainly(vm, cls) or find(vm, cls, "_compiled_call_impl") is not None:
            return None
        self.stand_at(vm, "_call_impl")
        if find(vm, cls, "_call_impl") is not self.stands[1].func:
            return None
        self.stand_at(vm, "forward")
        forward = find(vm, cls, "forward")
        self.stand_at(vm, _TABLES[0])
        if type(forward) is not types.FunctionType or any(find(vm, cls, name) is not MISSING for name in _TABLES):
            return None
        return forward

    def stand_at(self, vm: VM, name: str) -> None:
        """Locate the next guards where `__call__` reads this name."""
        vm.lines.located = (vm.running.code, vm.running.ip, self.lines[name])

    def guard_module(self, vm: VM, module: torch.nn.Module) -> bool:
        """Whether the module itself holds nothing that changes its call; the facts are guarded."""
        heap = vm.heap
        tracker = heap.by_standin.get(id(module))
        own = None if tracker is None or tracker.shape is not ShadowKind.OBJECT else instance_dict(module)
        if tracker is None or own is None or tracker.initial_dict is None \
                or any(name in own or name in tracker.initial_dict for name in _ABSENT):
            return False
        boxes: list[Box] = []
        for name in _TABLES:
            box = own.get(name)
            if not is_unseen_table(box, heap):
                return False
            boxes.append(box)
        if id(module) in self.guarded:
            return True
        places: list[Source] = [box.source() for box in boxes]
        if any(heap.shapes.gives_up(box.raw, place) for box, place in zip(boxes, places, strict=True)):
            return False
        self.guarded.add(id(module))
        add, attributes = heap.guards.add, DictOf(tracker.source)
        for name in _ABSENT:
            add(Guard(attributes, Kind.ABSENT, name, self.lines[name]))
        where = self.lines[_TABLES[0]]
        for box, place in zip(boxes, places, strict=True):
            add(Guard(place, Kind.TYPE, collections.OrderedDict, where))
            add(Guard(place, Kind.LEN, 0, where))
            heap.glanced.append((box.raw, place))
        return True

    def watch(self, vm: VM, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None,
              cont: Continuation | None) -> Frame | None:
        """Interpret a call up to that of `forward`, and remember how the frames stand there."""
        self.lines.clear()
        outer = begun(vm, _CALL, module, args, kwargs, cont)
        if outer is None:
            return None
        frames, began, count = [outer], [0, 0], 0
        while (frame := vm.running).code in _CALL_CODES:
            if frame not in frames:
                if len(frames) == len(_CALL_CODES) or frame.parent is not outer:
                    return outer  # it has returned, or calls a module itself
                frames.append(frame)
            if vm.depth == 1:
                if vm.steps == vm.stop_step:
                    return outer  # the loop stops here
                frame.step = vm.steps
                vm.steps += 1
            began[frames.index(frame)] = count
            count += 1
            handler, instr = frame.program[frame.ip]
            frame.ip += 1
            if instr.opname in _READING:
                self.lines[instr.argval] = vm.location()
            handler(vm, frame, instr)
        if len(frames) == len(_CALL_CODES) and vm.running.parent is frames[1] and self.lines.keys() == _READ:
            self.learn(vm, frames, began, count)
        return outer

    def learn(self, vm: VM, frames: list[Frame], began: list[int], count: int) -> None:
        slots = [read_slots(frame) for frame in frames]
        scope = frames[1].scope
        tables = [scope.seen.get(name) for name in _GLOBAL_TABLES]
        scopes = [scope, *(vm.heap.scopes.get(id(space.__dict__)) for space in (torch, torch._C))]
        if None in slots or None in scopes or scope.overlay or any(frame.stack for frame in frames) \
                or not all(type(table) is collections.OrderedDict for table in tables) \
                or len({self.lines[name] for name in _TABLES}) > 1:
            self.enabled = False
            return
        outer, inner = (Stand(frame.func, frame.unit, frame.program, frame.scope, frame.ip, each, at)  # type: ignore[arg-type]
                        for frame, each, at in zip(frames, slots, began, strict=True))
        self.stands, self.steps, self.tables, self.scopes = (outer, inner), count, tables, scopes


def begun(vm: VM, method: types.FunctionType, module: torch.nn.Module, args: tuple[Any, ...],
          kwargs: dict[str, Any] | None, cont: Continuation | None) -> Frame | None:
    """Call `method` as any function is called; its frame, where it has one."""
    below = vm.frame
    vm.call_function(method, (module, *args), kwargs, cont)
    frame = vm.running
    return frame if frame is not below and frame.parent is below and frame.func is method else None


def read_slots(frame: Frame) -> list[tuple[str, bool]] | None:
    """The name of the value in each slot; None where one holds a value that cannot be made again."""
    found = []
    for name, value in zip(frame.unit.local_names, frame.locals, strict=True):
        in_cell = type(value) is types.CellType
        if value is UNBOUND or in_cell and value == _EMPTY:
            found.append(("", in_cell))
        elif name in _NAMED:
            found.append((name, in_cell))
        else:
            return None
    return found
