"""requires_grad of leaves from outside.   p.requires_grad = False  ->  done by the residual, before or after the graph

In: a leaf from outside whose flag the program changes.  Out: a note.  Before the graph has used the leaf, the graph may
as well begin with the new flag; after its last use, the flag may as well change when the graph is done.  A leaf that is
used under both flags breaks where it changes: no compiler knows a leaf that is one for a while.  Outside views of the
leaf change with it: where a tensor shares its storage, the trace breaks, and that none does is guarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.partition import Address, Place, partition
from stator.heap.faces import NOWHERE, extent_of
from stator.heap.tracker import Shape

WAY = "flags of leaves"  # a way of capturing


@dataclass(eq=False)
class GradFlag:
    """The flag of one leaf: before the call, where the graph begins, and where it ends."""

    leaf: Any
    before: bool
    entry: bool
    final: bool
    uses: int = 0  # of the leaf by the graph, when the flag changed last


def may_be_noted(vm: Any, fake: Any) -> bool:
    hooked = any(hook is not None and hook.tensor is fake for _, hook in vm.hooks.values())
    with torch._C.DisableTorchFunction():
        changed = bool(vm.recorder.version_of(fake))
    return WAY not in vm.turned_off and vm.recorder.enclosing is None and not hooked and not changed


def note(vm: Any, fake: Any, value: bool) -> None:
    uses = len(vm.recorder.node_of(fake).users)
    flag = vm.grad_flags.get(id(fake))
    if flag is None:
        flag = vm.grad_flags[id(fake)] = GradFlag(fake, not value, not value, not value)
        vm.heap.note_handled(fake)
    require_unused(vm, flag)
    flag.final, flag.uses = value, uses
    if not uses:
        flag.entry = value
    vm.recorder.propagation.changed((fake,))
    with torch._C.DisableTorchFunction():
        fake.requires_grad_(value)


def require_unused(vm: Any, flag: GradFlag) -> None:
    """Since its flag changed after a use, the graph must not have used the leaf again."""
    if flag.final is not flag.entry and len(vm.recorder.node_of(flag.leaf).users) != flag.uses:
        raise Break("SB016", f"requires_grad becomes {flag.final} between two uses", turn_off=WAY)


def settle(vm: Any) -> list[GradFlag]:
    """The notes at the end of a trace; the fakes are as the graph finds the leaves."""
    for flag in vm.grad_flags.values():
        require_unused(vm, flag)
    if vm.grad_flags:
        guard_views(vm)
    for flag in vm.grad_flags.values():
        if flag.final is not flag.entry:
            with torch._C.DisableTorchFunction():
                flag.leaf.requires_grad_(flag.entry)
    return list(vm.grad_flags.values())


def guard_views(vm: Any) -> None:
    """Guard that no other tensor of the trace is a view of a leaf whose flag changes."""
    tensors = [tracker for tracker in vm.heap.trackers
               if tracker.shape is Shape.TENSOR and extent_of(tracker.original) != NOWHERE]
    if len(tensors) < 2:
        return
    places = [Place(tracker.source, Address.STORAGE, id(tracker.standin) in vm.grad_flags) for tracker in tensors]
    held = partition(places, [tracker.original for tracker in tensors])
    if any(number != first for number, first in enumerate(held.groups)):
        raise Break("SB016", "requires_grad of a leaf that shares its storage with another tensor", turn_off=WAY)
    vm.heap.guard(places[0].source, Kind.PARTITION, held)
