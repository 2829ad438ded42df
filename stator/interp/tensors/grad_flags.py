"""requires_grad of leaves from outside.   p.requires_grad = False  ->  done by the residual, before or after the graph

In: a leaf from outside whose flag the program changes.  Out: a note.  Before the graph has used the leaf, the graph may
as well begin with the new flag; after its last use, the flag may as well change when the graph is done.  A leaf that is
used under both flags breaks where it changes: no compiler knows a leaf that is one for a while.  A view has the flag
of its base: a base with a view that the call sees breaks there, and the guards keep the other bases apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.metadata.propagation import ExactNeeded
from stator.guards.guard import Kind
from stator.heap.tracker import ShadowKind
from stator.interp.services import VM
from stator.source import CallOf, Pinned
from stator.strategy import Strategy


@dataclass(eq=False)
class GradFlag:
    """The flag of one leaf: before the call, where the graph begins, and where it ends."""

    leaf: Any
    before: bool
    entry: bool
    final: bool
    uses: int = 0  # of the leaf by the graph, when the flag changed last


def may_be_noted(vm: VM, fake: FakeTensor) -> bool:
    hooked = any(hook is not None and hook.tensor is fake for _, hook in vm.autograd.hooks.values())
    with torch._C.DisableTorchFunction():
        changed = bool(vm.recorder.version_of(fake))
    return Strategy.LEAF_FLAGS not in vm.turned_off and vm.recorder.scope.enclosing is None \
        and not hooked and not changed


def note(vm: VM, fake: FakeTensor, value: bool) -> None:
    node = vm.recorder.node_of(fake)
    uses = len(node.users)
    if uses and vm.recorder.propagation.enabled:
        raise ExactNeeded  # only exact fakes have bases
    with torch._C.DisableTorchFunction():
        made = pytree.tree_leaves([user.meta.get("example_value") for user in node.users])
        if any(type(each) is FakeTensor and each._base is fake for each in made):
            raise has_views(value)
    flag = vm.tensors.flags.get(id(fake))
    if flag is None:
        flag = vm.tensors.flags[id(fake)] = GradFlag(fake, not value, not value, not value)
        vm.heap.note_handled(fake)
    require_unused(vm, flag)
    flag.final, flag.uses = value, uses
    if not uses:
        flag.entry = value
    vm.recorder.propagation.changed((fake,))
    with torch._C.DisableTorchFunction():
        fake.requires_grad_(value)


def require_unused(vm: VM, flag: GradFlag) -> None:
    """Since its flag changed after a use, the graph must not have used the leaf again."""
    if flag.final is not flag.entry and len(vm.recorder.node_of(flag.leaf).users) != flag.uses:
        raise Break("SB016", f"requires_grad becomes {flag.final} between two uses", turn_off=Strategy.LEAF_FLAGS)


def settle(vm: VM) -> list[GradFlag]:
    """The notes at the end of a trace; the fakes are as the graph finds the leaves."""
    for flag in vm.tensors.flags.values():
        require_unused(vm, flag)
    if vm.tensors.flags:
        guard_bases(vm)
    for flag in vm.tensors.flags.values():
        if flag.final is not flag.entry:
            with torch._C.DisableTorchFunction():
                flag.leaf.requires_grad_(flag.entry)
    return list(vm.tensors.flags.values())


def guard_bases(vm: VM) -> None:
    """Guard that no other tensor of the call is a view of a noted leaf; a Parameter is no view."""
    leaves = [vm.heap.by_standin[key] for key in vm.tensors.flags]
    others = [tracker for tracker in vm.heap.trackers if tracker.shape is ShadowKind.TENSOR
              and type(tracker.original) is not torch.nn.Parameter]
    if len(leaves) == 1 and others == leaves or not others:
        return
    if holds_view(len(leaves), *(tracker.original for tracker in leaves + others)):
        raise has_views(next(iter(vm.tensors.flags.values())).final)
    sources = tuple(tracker.source for tracker in leaves + others)
    vm.heap.guard(CallOf(Pinned(holds_view), (Pinned(len(leaves)), *sources)), Kind.FRESH_CALL, False)


def holds_view(count: int, *tensors: torch.Tensor) -> bool:
    """A pure reader for guards: whether one of the others is a view of one of the first `count`."""
    with torch._C.DisableTorchFunction():
        bases = {id(each) for each in tensors[:count]}
        return any(id(each._base) in bases for each in tensors[count:])


def has_views(value: bool) -> Break:
    return Break("SB016", f"requires_grad becomes {value} of a tensor with views", turn_off=Strategy.LEAF_FLAGS)
