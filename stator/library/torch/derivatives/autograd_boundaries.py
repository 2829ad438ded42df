"""Rules for what only autograd itself can do.   nn.Parameter(t), full backward hooks of modules  ->  nodes of the graph

In: a tensor that becomes a Parameter; a call of a module with full backward hooks.  Out: nodes (see
graph/autograd/autograd_boundaries), and fakes with the same history.  The hooks themselves run when the program's
backward pass does, as they are: they are the user's own functions, and which ones they are is guarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import BackwardHook

from stator.breaks import Break
from stator.graph.autograd.autograd_boundaries import (
    WatchModule,
    new_parameter,
    through_input,
    through_output,
)
from stator.guards.guard import Kind
from stator.heap.raw_access import instance_dict
from stator.host.suspended_patches import own_entry
from stator.host.value_kinds import is_a
from stator.interp.lookup import find
from stator.interp.objects.descriptors import is_outside
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

_HOOK = "a backward hook on a module"
_PARAMETER = "a Parameter or Buffer made inside the captured code"


def require_plain(vm: VM, what: str) -> None:
    """Break where the graph could not be cut at this place."""
    recorder = vm.recorder
    recorder.refuse_tangents(what)
    if recorder.scope.enclosing is not None or recorder.region.marks or vm.modes.active or recorder.classes \
            or recorder.wrappers.behind or recorder.symbols.has_fresh and not recorder.backend.in_order:
        raise Break("SB016", what)
    # Pieces must know which of their inputs share memory.
    if not recorder.backend.in_order:
        recorder.propagation.require_exact()


# ---------------------------------------------------------------------- parameters


@rule(torch.nn.Parameter)
def _parameter(vm: VM, /, data: Any = None, requires_grad: Any = True, *args: Any, **kwargs: Any) -> Any:
    if find(vm, torch.nn.Parameter, "__new__") is not own_entry(torch.nn.Parameter, "__new__"):
        raise Break("SB016", "a Parameter made by a replaced Parameter.__new__")
    if args or kwargs or type(data) is not FakeTensor or type(requires_grad) is not bool:
        raise Break("SB016", _PARAMETER)
    require_plain(vm, _PARAMETER)
    with torch._C.DisableTorchFunction():
        if requires_grad and not (data.is_floating_point() or data.is_complex()) or data.is_inference():
            raise Break("SB016", _PARAMETER)
        made = data.detach().requires_grad_(requires_grad)
    made._is_param = True
    vm.recorder.propagation.changed((data,))
    vm.recorder.record("call_function", new_parameter, (data, requires_grad), {}, made)
    vm.recorder.log.changes += 1
    return made


# ---------------------------------------------------------------------- modules


@rule(BackwardHook.setup_input_hook)
def _setup_input(vm: VM, self: Any, args: Any) -> Any:
    attributes = instance_dict(self)
    if type(args) is not tuple or id(self) in vm.heap.by_standin or attributes is None \
            or id(self) in vm.autograd.watches:
        raise Break("SB016", _HOOK)
    require_plain(vm, _HOOK)
    module = original_of(vm, attributes["module"])
    hooks, before = (tuple([original_of(vm, each) for each in vm.collect(attributes[name])])
                     for name in ("user_hooks", "user_pre_hooks"))
    node = vm.recorder.record("call_function", WatchModule(module, hooks, before), (), {}, None)
    vm.autograd.watches[id(self)] = (self, node)
    return watched(vm, self, args, through_input)


@rule(BackwardHook.setup_output_hook)
def _setup_output(vm: VM, self: Any, args: Any) -> Any:
    if id(self) not in vm.autograd.watches:
        raise Break("SB016", _HOOK)
    if type(args) is tuple:
        return watched(vm, self, args, through_output)
    if is_a(args, tuple):
        raise Break("SB016", f"{_HOOK} that returns a {type(args).__name__}")
    return watched(vm, self, (args,), through_output)[0]


def original_of(vm: VM, value: object) -> Any:
    """The user's object behind a value: the hook that a later backward pass calls."""
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None and not is_outside(vm, value):
        raise Break("SB016", f"{_HOOK} that was made inside the captured code")
    original = value if tracker is None else tracker.original
    vm.heap.guard(vm.heap.source_of(value), Kind.ID, original)
    return original


def watched(vm: VM, watch: object, values: tuple[Any, ...], function: Callable[..., Any]) -> tuple[Any, ...]:
    """The values of one side of a module, its tensors new ones where gradients flow through them."""
    require_plain(vm, _HOOK)
    tensors = [each for each in values if type(each) is FakeTensor]
    if not tensors and any(is_a(each, torch.Tensor) for each in values):
        raise Break("SB016", _HOOK)
    places = tuple([each if type(each) is FakeTensor else None for each in values])
    with torch._C.DisableTorchFunction():
        flows = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        found = iter(BackwardHookFunction.apply(*tensors) if flows else tensors)
    result = tuple([next(found) if type(each) is FakeTensor else each for each in values])
    parts = tuple([each if type(each) is FakeTensor else None for each in result]) if flows else None
    vm.recorder.record("call_function", function, (vm.autograd.watches[id(watch)][1], places), {}, parts)
    vm.recorder.log.changes += 1
    return result
