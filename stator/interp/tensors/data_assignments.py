"""Tensors from outside that get other memory.   p.data = p.data - 0.1 * p.grad  ->  done by the residual, at the end

In: an assignment to `.data` of a tensor from outside.  Out: a note.  Its memory is exchanged when the graph is done; in
the graph, what uses the tensor afterwards uses the owner of its new memory.  A leaf that wants a gradient cannot be
used so: a later use breaks at the assignment, as does what autograd would keep.  `p.data` read again is that of what
was assigned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.metadata.input_layouts import PLAIN_CLASSES
from stator.graph.metadata.propagation import ExactNeeded
from stator.interp.services import VM
from stator.strategy import Strategy

ASSIGNED = "assignment to Tensor.data"  # a cause of breaks
_LOOKS = frozenset({"data", "detach"})  # uses of a tensor that autograd keeps nothing of


@dataclass(eq=False)
class DataNote:
    """A tensor from outside, its node, what gives it its memory, whether autograd may have kept it before, and the
    nodes that the graph uses in its place."""

    tensor: Any
    node: fx.Node
    value: Any
    kept: bool
    in_its_place: list[fx.Node] = field(default_factory=list)


def assign(vm: VM, fake: FakeTensor, value: object) -> None:
    note = vm.tensors.data.get(id(fake))
    with torch._C.DisableTorchFunction():
        if has_memory_of(value, fake if note is None else note.value):
            return  # `p.data += 1`: done in place, and the memory is what it was
    require_notable(vm, fake, value)
    recorder = vm.recorder
    if recorder.propagation.enabled:
        raise ExactNeeded  # from now on two fakes share a storage
    with torch._C.DisableTorchFunction():
        wants_grad = fake.requires_grad
    value = owner_of_memory(vm, value, not wants_grad)
    vm.heap.note_write(fake)
    if note is None:
        node = recorder.node_of(fake)
        note = vm.tensors.data[id(fake)] = DataNote(fake, node, value, is_kept(node))
    note.value = value
    if not wants_grad:
        note.in_its_place.append(recorder.node_of(value))
    recorder.layouts.before((fake,), {})
    with torch._C.DisableTorchFunction():
        fake.data = value  # what it looks like; its sizes may be others
    recorder.log.reshaped += 1
    recorder.log.changes += 1
    used_again = Break("SB006", "assignment to Tensor.data of a tensor that is used again",
                       turn_off=Strategy.DATA_ASSIGNMENTS)
    recorder.nodes[id(fake)] = used_again if wants_grad else recorder.node_of(value)


def owner_of_memory(vm: VM, value: object, apart: bool) -> Any:
    """A tensor that lies where `value` does now, and stays there: one from outside may be moved later.

    `apart`: one of its own, whose uses in the graph are those of the tensor that gets the memory.
    """
    note = vm.tensors.data.get(id(value))
    value = value if note is None else note.value
    return vm.torch_attribute(value, "data", torch.Tensor.data) if apart or id(value) in vm.heap.by_standin else value


def is_kept(node: fx.Node) -> bool:
    return any(name_of_use(user) not in _LOOKS for user in node.users)


def has_memory_of(value: Any, fake: Any) -> bool:
    """Whether one tensor lies where the other does."""
    if type(value) is not FakeTensor or value.layout is not torch.strided or fake.layout is not torch.strided:
        return False
    return layout(value) == layout(fake) and value.storage_offset() == fake.storage_offset() \
        and value.untyped_storage()._cdata == fake.untyped_storage()._cdata


def require_notable(vm: VM, fake: Any, value: Any) -> None:
    """Break where the residual's assignment would not be the program's."""
    tracker, recorder = vm.heap.by_standin.get(id(fake)), vm.recorder
    if tracker is None or Strategy.DATA_ASSIGNMENTS in vm.turned_off or type(value) is not FakeTensor or value is fake \
            or recorder.scope.enclosing is not None or recorder.region.marks or recorder.classes \
            or recorder.wrappers.behind or type(tracker.original) not in PLAIN_CLASSES:
        raise Break("SB006", ASSIGNED)
    with torch._C.DisableTorchFunction():
        alike = fake.layout is torch.strided and not fake.is_inference() and not value.is_inference() \
            and kind(fake) == kind(value) and fake.is_leaf \
            and not fake._has_symbolic_sizes_strides and not value._has_symbolic_sizes_strides
    if not alike:
        raise Break("SB006", "assignment to Tensor.data of a tensor that lies otherwise in memory")


def kind(fake: FakeTensor) -> tuple[Any, ...]:
    return fake.dtype, fake.device, fake.layout, fake.is_conj(), fake.is_neg()


def layout(fake: FakeTensor) -> tuple[Any, ...]:
    return *kind(fake), tuple(fake.shape), fake.stride()


def name_of_use(node: fx.Node) -> str:
    """`x.data` is a call of getattr."""
    if node.target is getattr:
        return str(node.args[1])
    return node.target if type(node.target) is str else getattr(node.target, "__name__", "")


def current(vm: VM, fake: FakeTensor, name: str) -> Any:
    """What to ask for an attribute of a tensor: of one with other memory, the owner of that memory has `data`."""
    note = vm.tensors.data.get(id(fake)) if name == "data" else None
    return fake if note is None else note.value


def settle(vm: VM, outputs: list[Any]) -> None:
    """A backward pass sees the new memory of a tensor that autograd has kept, which a compiler would not know."""
    with torch._C.DisableTorchFunction():
        differentiable = any(type(each) is FakeTensor and each.requires_grad for each in outputs)
    if not differentiable:
        return
    if any(is_kept(node) for note in vm.tensors.data.values() for node in note.in_its_place):  # not the tensor itself
        raise Break("SB006", "assignment to Tensor.data of a tensor that is used again",
                    turn_off=Strategy.DATA_ASSIGNMENTS)
    if not vm.recorder.backend.in_order and any(note.kept for note in vm.tensors.data.values()):
        vm.recorder.backend.as_it_is = True
