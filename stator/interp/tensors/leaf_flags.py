"""Changes of requires_grad of leaves from outside.   d.requires_grad_(False); d(g(x)); d.requires_grad_(True); d(y)

In: a leaf and its new flag.  Out: a note, by which the residual assigns the flag before the graph, after it, or both.
A leaf that the graph uses under both flags wants a gradient there; where the flag is off, `leaf.detach()` is used.  A
base with a view that the call sees breaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break, Strategy
from stator.graph.fx.nodes import first_operation
from stator.graph.metadata.input_layouts import PLAIN_CLASSES
from stator.graph.metadata.propagation import ExactNeeded
from stator.heap.tracker import ShadowKind
from stator.interp.services import VM
from stator.source import Pinned


@dataclass(eq=False)
class GradFlag:
    """The flag of one leaf: before the call, where the graph begins, and now."""

    leaf: Any
    node: fx.Node  # the input of the graph
    before: bool
    entry: bool
    final: bool
    aliases: list[fx.Node] = field(default_factory=list)  # detached, used in its place where the flag is off


def may_be_noted(vm: VM, fake: FakeTensor) -> bool:
    hooked = any(hook is not None and hook.tensor is fake for _, hook in vm.autograd.hooks.values())
    return Strategy.LEAF_FLAGS not in vm.turned_off and vm.recorder.scope.enclosing is None \
        and not hooked and id(fake) not in vm.tensors.data


def note_flag(vm: VM, fake: FakeTensor, value: bool) -> None:
    recorder = vm.recorder
    node = recorder.node_of(fake)
    if node.users and recorder.propagation.enabled:
        raise ExactNeeded  # only exact fakes have bases
    if has_views(fake, node):
        raise breaks_for_views(value)
    flag = vm.tensors.flags.get(id(fake))
    if flag is None:
        flag = vm.tensors.flags[id(fake)] = GradFlag(fake, node, not value, not value, not value)
        vm.heap.note_handled(fake)
    if not flag.node.users:
        flag.entry = value
    elif value is flag.entry:
        recorder.nodes[id(fake)] = flag.node
    else:
        if type(vm.heap.by_standin[id(fake)].original) not in PLAIN_CLASSES or recorder.region.tangents:
            raise Break("SB016", f"requires_grad becomes {value} between two uses", turn_off=Strategy.LEAF_FLAGS)
        if value:
            detach_before(vm, flag)
        else:
            recorder.nodes[id(fake)] = detached(vm, flag)
    flag.final = value
    recorder.propagation.changed((fake,))
    with torch._C.DisableTorchFunction():
        fake.requires_grad_(value)


def detached(vm: VM, flag: GradFlag) -> fx.Node:
    """A node for the leaf without a history, from here on."""
    with torch._C.DisableTorchFunction():
        alias = flag.leaf.detach()
    vm.recorder.record("call_method", "detach", (flag.leaf,), {}, alias)
    flag.aliases.append(vm.recorder.node_of(alias))
    return flag.aliases[-1]


def detach_before(vm: VM, flag: GradFlag) -> None:
    """Let the uses so far be those of a detached leaf: the graph gets the leaf with the flag on."""
    node, graph = flag.node, vm.recorder.graph
    with torch._C.DisableTorchFunction():
        alias = flag.leaf.detach()
    with graph.inserting_before(first_operation(node)):
        made = graph.create_node("call_method", "detach", (node,), {})
    made.meta["example_value"] = alias
    made.meta["stack_trace"] = next(iter(node.users)).meta.get("stack_trace")
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    vm.recorder.tie(alias, made)
    flag.aliases.append(made)
    flag.entry = True


def settle_flags(vm: VM) -> list[GradFlag]:
    """The notes at the end of a trace; the fakes are as the graph finds the leaves."""
    if vm.tensors.flags:
        guard_bases(vm)
    for flag in vm.tensors.flags.values():
        for alias in flag.aliases:
            if has_views(flag.leaf, alias):
                raise breaks_for_views(flag.final)
            if not alias.users:
                vm.recorder.graph.erase_node(alias)
        vm.recorder.nodes[id(flag.leaf)] = flag.node
        if flag.final is not flag.entry:
            with torch._C.DisableTorchFunction():
                flag.leaf.requires_grad_(flag.entry)
    return list(vm.tensors.flags.values())


def has_views(leaf: FakeTensor, node: fx.Node) -> bool:
    """Whether uses of a node have made views of a leaf."""
    with torch._C.DisableTorchFunction():
        made = pytree.tree_leaves([user.meta.get("example_value") for user in node.users])
        return any(type(each) is FakeTensor and each._base is leaf for each in made)


def guard_bases(vm: VM) -> None:
    """Guard that no other tensor of the call is a view of a noted leaf; a Parameter is no view."""
    leaves = [vm.heap.by_standin[key] for key in vm.tensors.flags]
    others = [tracker for tracker in vm.heap.trackers if tracker.shape is ShadowKind.TENSOR
              and type(tracker.original) is not torch.nn.Parameter]
    if len(leaves) == 1 and others == leaves or not others:
        return
    if holds_view(len(leaves), *(tracker.original for tracker in leaves + others)):
        raise breaks_for_views(next(iter(vm.tensors.flags.values())).final)
    sources = tuple(tracker.source for tracker in leaves + others)
    vm.heap.guard_call(holds_view, False, Pinned(len(leaves)), *sources)


def holds_view(count: int, *tensors: torch.Tensor) -> bool:
    """A pure reader for guards: whether one of the others is a view of one of the first `count`."""
    with torch._C.DisableTorchFunction():
        bases = {id(each) for each in tensors[:count]}
        return any(id(each._base) in bases for each in tensors[count:])


def breaks_for_views(value: bool) -> Break:
    return Break("SB016", f"requires_grad becomes {value} of a tensor with views", turn_off=Strategy.LEAF_FLAGS)
