"""DTensor.   DTensor.from_local(x, mesh, [Shard(0)]).redistribute(...)  ->  one node for each conversion

In: methods of DTensor that take a mesh and placements; placements, which pybind11 binds.  Out: nodes that call the
method with these constants, on wrappers of fakes (graph/record/wrapper_subclasses.py); facts of a DTensor, whose
context is guarded; placements as constants, compared by value.  Rules are registered when the program has imported
DTensor.

`async_op` is dropped: in a graph the result of a collective is awaited where it is made, and its values are the same.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.mutation import COLLECTIVES
from stator.graph.metadata.propagation import ExactNeeded
from stator.guards.guard import Kind
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import INTERPRETED, rule
from stator.interp.vm import VM
from stator.library.distributed.world import _members
from stator.ranks.hidden_collectives import collectives_seen
from stator.source import CallOf, Pinned

MODULE, MESHES = "torch.distributed.tensor", "torch.distributed.device_mesh"
_PLACEMENTS = "Shard Replicate Partial"
_FACTS = "is_shard is_replicate is_partial __eq__ __ne__ __hash__ dim reduce_op".split()


class MethodOfDTensor:
    """The target of a node: a method with constants, called with one tensor."""

    never_fails = True  # its arguments were right while tracing

    def __init__(self, function: Callable[..., Any], constants: dict[str, object]) -> None:
        self.function, self.constants = function, constants
        self.__name__ = self.__qualname__ = function.__name__

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.function(tensor, **self.constants)
        return found


def equal_placements(found: object, known: object) -> bool:
    """A pure reader for guards."""
    return type(found) is type(known) and found == known


def known_placement(vm: VM, value: object) -> object:
    """The placement behind a stand-in; a fact of it is its value."""
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None:
        return value
    if type(tracker.source) is not Pinned:
        equal = CallOf(Pinned(equal_placements), (tracker.source, Pinned(tracker.original)))
        vm.heap.guard(equal, Kind.FRESH_CALL, True)
    return tracker.original


def constant(vm: VM, value: object) -> object:
    """A mesh, placements or numbers among the arguments of a method."""
    vm.heap.expose_deep(value)
    if isinstance(value, (tuple, list)):
        return tuple([constant(vm, each) for each in value])
    tensors = sys.modules[MODULE]
    if isinstance(value, tensors.Placement):
        return known_placement(vm, value)
    if isinstance(value, sys.modules[MESHES].DeviceMesh):
        return vm.guard_identity(value)
    if value is None or isinstance(value, (bool, int, torch.SymInt, torch.dtype)):
        [known] = specialise_deep(vm, (value,))
        return known
    raise Break("SB015", f"a DTensor made with a {type(value).__name__}")


def call_method(vm: VM, function: FunctionType, tensor: object, **constants: object) -> FakeTensor:
    """Record one node, and do what it does on fakes."""
    recorder = vm.recorder
    if type(tensor) is not FakeTensor or vm.modes.active:
        raise Break("SB017", f"{function.__qualname__} of a {type(tensor).__name__}")
    if recorder.propagation.enabled:
        raise ExactNeeded
    target = MethodOfDTensor(function, {name: constant(vm, value) for name, value in constants.items()
                                        if value is not None})
    with collectives_seen() as seen:
        made = recorder.attempt(target, target, *recorder.wrappers.inside(((tensor,), {})))
    with torch._C.DisableTorchFunction():
        made = recorder.wrappers.noted(made)
    if type(made) is not FakeTensor:
        raise Break("SB017", f"{function.__qualname__}, which makes no tensor")
    recorder.record("call_function", target, (tensor,), {}, made, (), COLLECTIVES if seen else "")
    return made


def register_rules() -> None:
    """Called when the program has imported torch.distributed.tensor."""
    module = sys.modules[MODULE]
    dtensor, owner = module.DTensor, getattr(torch._C, "_distributed", None)
    from_local, redistribute = dtensor.from_local, dtensor.redistribute

    @rule(from_local)
    def _from_local(vm: VM, local_tensor: object, device_mesh: object = None, placements: object = None, *,
                    run_check: bool = False, **more: object) -> object:
        if device_mesh is None or placements is None or run_check or id(local_tensor) in vm.recorder.classes:
            return INTERPRETED
        return call_method(vm, from_local, local_tensor, device_mesh=device_mesh, placements=placements, **more)

    @rule(redistribute)
    def _redistribute(vm: VM, self: object, device_mesh: object = None, placements: object = None, *,
                      async_op: object = False, **more: object) -> object:
        return call_method(vm, redistribute, self, device_mesh=device_mesh, placements=placements, **more)

    for each in (dtensor.to_local, dtensor.full_tensor):
        @rule(each)
        def _as_tensor(vm: VM, callee: FunctionType, self: object, *, grad_placements: object = None) -> object:
            return call_method(vm, callee, self, grad_placements=grad_placements)

    @rule(dtensor.placements.fget)
    def _placements(vm: VM, self: object) -> object:
        wrapper = vm.recorder.wrappers.behind.get(id(self))
        return INTERPRETED if wrapper is None else tuple([
            vm.heap.adopt(each, Pinned(each)) for each in wrapper._spec.placements])

    @rule(dtensor.device_mesh.fget)
    def _mesh(vm: VM, self: object) -> object:
        wrapper = vm.recorder.wrappers.behind.get(id(self))
        return INTERPRETED if wrapper is None else vm.heap.adopt(wrapper._spec.mesh, Pinned(wrapper._spec.mesh))

    @rule(*[getattr(module, name) for name in _PLACEMENTS.split()])
    def _placement(vm: VM, callee: type, /, *args: object, **kwargs: object) -> object:
        vm.heap.expose_deep((args, kwargs))
        found = callee(*specialise_deep(vm, args), **dict(zip(kwargs, specialise_deep(vm, tuple(kwargs.values())),
                                                             strict=True)))
        return vm.heap.adopt(found, Pinned(found))

    bound = [getattr(owner, name) for name in ("Placement", *_PLACEMENTS.split()) if hasattr(owner, name)]
    members = {id(each): each for cls in bound for each in _members(cls, [n for n in _FACTS if n in vars(cls)])
               if not inspect.isfunction(each)}

    @rule(*members.values())
    def _fact(vm: VM, callee: Callable[..., object], /, *values: object) -> object:
        """A placement never changes."""
        return vm.native_unhooked(callee, tuple([
            known_placement(vm, each) if isinstance(each, module.Placement) else each for each in values]))
