"""Members of a tensor beside its values: leaf or not, requires_grad, grad, data, hooks, addresses.

    x.is_leaf                 ->  the fake's answer, guarded where x comes from outside
    x.grad = None             ->  noted; the residual assigns it
    x.requires_grad_()        ->  a node, where the leaf stays in the graph; of a leaf from outside, a note
    p.data = p.data - g       ->  a note: the residual exchanges the memory after the graph

Flags of leaves from outside are the matter of `leaf_flags`.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.graph.metadata.input_layouts import PLAIN_CLASSES
from stator.graph.metadata.propagation import ExactNeeded
from stator.guards.guard import Kind
from stator.guards.tensor_meta import tensor_meta
from stator.heap.tracker import VariableTracker
from stator.interp.frame import Raised
from stator.interp.services import VM
from stator.interp.tensors.data_in_graph import ASSIGNED, assign_in_graph
from stator.interp.tensors.leaf_flags import may_be_noted, note_flag
from stator.interp.tensors.tensor_copies import set_flag
from stator.shapes.symbolic_values import specialise
from stator.source import Attr, CallOf, Pinned

NOT_NOTED = object()
_LEAF = torch._C.TensorBase.is_leaf.__get__
_NODE = torch._C.TensorBase.grad_fn.__get__
_RETAINS = torch._C.TensorBase.retains_grad.__get__
ADDRESSES = frozenset({"_version", "_cdata", "_python_dispatch", "data_ptr"})
_AUTOGRAD = frozenset({"_backward_hooks", "_post_accumulate_grad_hooks", "output_nr", "_grad_fn", "retains_grad",
                       "grad_dtype"})
_LOOKS = frozenset({"data", "detach"})  # uses of a tensor that autograd keeps nothing of
# Without gradients they do nothing: a call that is made again after they have dropped some does the same.
_DROPPING = frozenset({inspect.unwrap(torch.optim.Optimizer.zero_grad).__code__, torch.nn.Module.zero_grad.__code__})


def guard_offsets(vm: VM) -> None:
    for graph_input in vm.recorder.inputs:
        if graph_input.tensor is not None:  # not a number
            meta = tensor_meta(graph_input.tensor, with_offset=True)
            vm.heap.guard(graph_input.source, Kind.TENSOR, dataclasses.replace(
                vm.recorder.meta_of(graph_input.tensor, graph_input.fake), storage_offset=meta.storage_offset))


def guard_storage_sizes(vm: VM) -> None:
    for graph_input in vm.recorder.inputs:
        if graph_input.tensor is not None:
            vm.heap.guard_call(storage_size, storage_size(graph_input.tensor), graph_input.source)


def storage_size(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        size: int = tensor.untyped_storage().nbytes()
        return size


def read(vm: VM, fake: Any, name: str) -> Any:
    """The value of a bookkeeping attribute; NOT_NOTED where `name` is none."""
    tracker = vm.heap.by_standin.get(id(fake))
    if name == "grad" or name == "_grad":
        return grad_of(vm, fake, tracker)
    if name == "is_leaf":
        return is_leaf(vm, fake, tracker)
    if name == "grad_fn":
        if is_leaf(vm, fake, tracker):
            return None
        if Strategy.GRAD_FN in vm.turned_off:
            raise behind_autograd(vm, "SB016", "Tensor.grad_fn")
        with torch._C.DisableTorchFunction():
            if tracker is not None and not fake._version:  # the fake's own node is made up
                return vm.heap.adopt(tracker.original.grad_fn, CallOf(Pinned(_NODE), (tracker.source,)))
            if tracker is not None:
                raise behind_autograd(vm, "SB016", "Tensor.grad_fn")
            node = fake.grad_fn
        vm.autograd.nodes[id(node)] = node, fake  # that it is not None may be asked, and a hook registered
        return node
    if name == "_version" and vm.recorder.log.in_place:
        raise behind_autograd(vm, "SB013", "Tensor._version: a counter of writes")
    if name in ADDRESSES:
        raise Break("SB013", f"Tensor.{name}: an address or a counter")
    if name in _AUTOGRAD:
        raise Break("SB016", f"Tensor.{name}")
    if name in ("__dict__", "_base", "volatile", "name", "_typed_storage"):
        raise Break("SB005", f"Tensor.{name}")
    return NOT_NOTED


def behind_autograd(vm: VM, code: str, detail: str) -> Break:
    """A break after a graph that no compiler may have: the answer is in autograd's own record of each operation."""
    if vm.recorder.backend.in_order or Strategy.COMPILER in vm.turned_off:
        return Break(code, detail)
    return Break(code, detail, turn_off=Strategy.COMPILER)


def is_leaf(vm: VM, fake: Any, tracker: VariableTracker | None) -> bool:
    with torch._C.DisableTorchFunction():
        if tracker is None:
            return fake.is_leaf
        leaf, wants_grad = tracker.original.is_leaf, tracker.original.requires_grad
    if wants_grad:  # otherwise it is a leaf, and requires_grad is guarded
        vm.heap.guard_call(_LEAF, leaf, tracker.source)
    return leaf


def grad_of(vm: VM, fake: object, tracker: VariableTracker | None) -> Any:
    if vm.autograd.in_hooks:
        raise Break("SB016", "grad of a tensor, in a hook of a module")
    if vm.frame is None or vm.frame.code not in _DROPPING:
        vm.tensors.read_grads.add(id(fake))
    if id(fake) in vm.tensors.grads:
        return vm.tensors.grads[id(fake)][1]
    if not is_leaf(vm, fake, tracker) and not keeps_gradient(vm, fake, tracker):
        raise Break("SB016", "grad of a tensor that is no leaf, which warns", asks_caller=True)
    if tracker is None:
        return None
    with torch._C.DisableTorchFunction():
        grad = tracker.original.grad
    return vm.heap.adopt(grad, Attr(tracker.source, "grad"))


def keeps_gradient(vm: VM, fake: object, tracker: VariableTracker | None) -> bool:
    """Whether retain_grad() was called on a tensor that is no leaf; what the trace itself has made had no backward."""
    if tracker is None:
        return id(fake) in vm.autograd.retained
    with torch._C.DisableTorchFunction():
        kept = tracker.original.retains_grad
    if kept:
        vm.heap.guard_call(_RETAINS, True, tracker.source)
    return kept


def write(vm: VM, fake: FakeTensor, name: str, value: object) -> bool:
    """Assign a bookkeeping attribute; False where `name` is none."""
    writer = {"requires_grad": set_requires_grad, "grad": _write_grad, "data": assign_data}.get(name)
    if writer is not None:
        writer(vm, fake, value)
    return writer is not None


def set_requires_grad(vm: VM, fake: Any, value: Any) -> None:
    """A change of the flag makes or unmakes a leaf in the middle of a graph, which no compiler knows."""
    if type(value) is torch.SymBool:
        value = specialise(value)
    if type(value) is not bool:
        raise Raised(RuntimeError("requires_grad must be a bool"))
    with torch._C.DisableTorchFunction():
        if fake.requires_grad is value:
            return
        allowed = fake.is_leaf and (fake.is_floating_point() or fake.is_complex())
        inference = fake.is_inference()
    if id(fake) in vm.recorder.wrappers.behind:
        raise Break("SB016", f"requires_grad of a wrapper becomes {value}")
    if allowed and set_flag(vm, fake, value):
        return
    if allowed and value and not inference and may_become_leaf(vm, fake):
        vm.recorder.require_grad(fake)
        vm.autograd.leaves.append(fake)
        return
    tracker = vm.heap.by_standin.get(id(fake))
    if allowed and tracker is not None and not inference and is_leaf(vm, fake, tracker) and may_be_noted(vm, fake):
        note_flag(vm, fake, value)
        return
    if not allowed:
        vm.native_unhooked(torch.Tensor.requires_grad_, (fake, value))  # raises what eager raises
    raise Break("SB016", f"requires_grad becomes {value}")


def may_become_leaf(vm: VM, fake: FakeTensor) -> bool:
    """Whether a tensor of the graph can be made a leaf there: as long as it stays there (see require_inner_leaves)."""
    return Strategy.NEW_LEAVES not in vm.turned_off and vm.heap.by_standin.get(id(fake)) is None \
        and vm.recorder.scope.enclosing is None


def require_inner_leaves(vm: VM, outputs: list[Any]) -> None:
    """A compiled graph returns no leaves of its own, and no gradient where none of its inputs has one: cut it there."""
    if any(id(output) in vm.tensors.grads and id(output) not in vm.heap.by_standin for output in outputs):
        raise Break("SB016", "a leaf made inside that leaves with its gradient", turn_off=Strategy.GRADIENTS_INSIDE)
    if not vm.autograd.leaves or vm.recorder.backend.in_order:
        return
    with torch._C.DisableTorchFunction():
        escapes = any(output is leaf for output in outputs for leaf in vm.autograd.leaves)
        rootless = any(type(output) is FakeTensor and output.requires_grad for output in outputs) \
            and not any(type(given.fake) is FakeTensor and given.fake.requires_grad for given in vm.recorder.inputs)
    if escapes or rootless:
        if vm.recorder.symbols.has_fresh or vm.recorder.log.in_place and vm.recorder.propagation.served:
            raise Break("SB016", "requires_grad becomes True", turn_off=Strategy.NEW_LEAVES)
        for node in vm.recorder.graph.find_nodes(op="call_method", target="requires_grad_"):
            node.meta[BOUNDARY] = True


def _write_grad(vm: VM, fake: Any, value: Any) -> None:
    if vm.autograd.in_hooks:
        raise Break("SB016", "assignment to Tensor.grad, in a hook of a module")
    if value is not None:
        if type(value) is not FakeTensor or value is fake:
            raise Break("SB006", f"assignment of a {type(value).__name__} to Tensor.grad")
        if (value.shape, value.dtype, value.device) != (fake.shape, fake.dtype, fake.device):
            raise Break("SB006", "assignment of a tensor of another kind to Tensor.grad")
    tracker = vm.heap.by_standin.get(id(fake))
    if tracker is None or not is_leaf(vm, fake, tracker):
        raise Break("SB016", "assignment to grad of a tensor that is no leaf from outside")
    if value is None and id(fake) not in vm.tensors.read_grads and vm.frame is not None \
            and vm.frame.code in _DROPPING and type(tracker.original) in PLAIN_CLASSES:
        vm.tensors.dropped.add(id(fake))  # else the old gradient would be in memory as long as the graph runs
    vm.tensors.grads[id(fake)] = (fake, value)


@dataclass(eq=False)
class DataNote:
    """A tensor from outside, its node, the owner of its new memory, and the nodes used in its place."""

    tensor: Any
    node: fx.Node
    value: Any
    kept: bool  # whether autograd may have kept it before
    version: int  # its own writes so far
    written: int = 0  # later writes, which reach the new memory
    in_its_place: list[fx.Node] = field(default_factory=list)

    def later_writes(self) -> int:
        """Count the writes to the new memory, which the graph does not make to the tensor."""
        self.written += self.tensor._version - self.version
        torch._C._autograd._unsafe_set_version_counter((self.tensor,), (self.version,))
        return self.written


def assign_data(vm: VM, fake: FakeTensor, value: object) -> None:
    note, flag = vm.tensors.data.get(id(fake)), vm.tensors.flags.get(id(fake))
    if flag is not None and flag.aliases:
        raise Break("SB006", f"{ASSIGNED} of a leaf that is used under both flags", turn_off=Strategy.LEAF_FLAGS)
    with torch._C.DisableTorchFunction():
        if has_memory_of(value, fake if note is None else note.value):
            return  # `p.data += 1`: done in place, and the memory is what it was
    if not is_notable(vm, fake, value):
        if note is not None:
            raise Break("SB006", ASSIGNED, turn_off=Strategy.DATA_ASSIGNMENTS)
        return assign_in_graph(vm, fake, value, is_kept(vm.recorder.node_of(fake)))
    recorder = vm.recorder
    if recorder.propagation.enabled:
        raise ExactNeeded  # from now on two fakes share a storage
    with torch._C.DisableTorchFunction():
        wants_grad = fake.requires_grad
    value = owner_of_memory(vm, value, not wants_grad)
    vm.heap.note_write(fake)
    if note is None:
        node = recorder.node_of(fake)
        note = vm.tensors.data[id(fake)] = DataNote(fake, node, value, is_kept(node), fake._version)
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
    """A tensor on the memory of `value` that stays there; `apart`: another one, used in place of the tensor."""
    note = vm.tensors.data.get(id(value))
    value = value if note is None else note.value
    return vm.torch_attribute(value, "data", torch.Tensor.data) if apart or id(value) in vm.heap.by_standin else value


def is_kept(node: fx.Node) -> bool:
    return any(name_of_use(user) not in _LOOKS for user in node.users)


def has_memory_of(value: Any, fake: Any) -> bool:
    if type(value) is not FakeTensor or value.layout is not torch.strided or fake.layout is not torch.strided:
        return False
    return layout_of(value) == layout_of(fake) and value.storage_offset() == fake.storage_offset() \
        and value.untyped_storage()._cdata == fake.untyped_storage()._cdata


def is_notable(vm: VM, fake: Any, value: Any) -> bool:
    """Whether an assignment by the residual, after the graph, is the assignment that the code makes."""
    tracker, recorder = vm.heap.by_standin.get(id(fake)), vm.recorder
    if tracker is None or Strategy.DATA_ASSIGNMENTS in vm.turned_off or type(value) is not FakeTensor or value is fake \
            or recorder.scope.enclosing is not None or recorder.region.marks or recorder.classes \
            or recorder.wrappers.behind or type(tracker.original) not in PLAIN_CLASSES:
        return False
    with torch._C.DisableTorchFunction():
        return bool(fake.layout is torch.strided and not fake.is_inference() and not value.is_inference()
                    and kind_of(fake) == kind_of(value) and fake.is_leaf
                    and not fake._has_symbolic_sizes_strides and not value._has_symbolic_sizes_strides)


def kind_of(fake: FakeTensor) -> tuple[Any, ...]:
    return fake.dtype, fake.device, fake.layout, fake.is_conj(), fake.is_neg()


def layout_of(fake: FakeTensor) -> tuple[Any, ...]:
    return *kind_of(fake), tuple(fake.shape), fake.stride()


def name_of_use(node: fx.Node) -> str:
    """`x.data` is a call of getattr."""
    if node.target is getattr:
        return str(node.args[1])
    return node.target if type(node.target) is str else getattr(node.target, "__name__", "")


def current_data(vm: VM, fake: FakeTensor, name: str) -> Any:
    """The tensor to read an attribute of: for `data` of one with other memory, the owner of that memory."""
    note = vm.tensors.data.get(id(fake)) if name == "data" else None
    return fake if note is None else note.value


def settle_data(vm: VM, outputs: list[Any]) -> None:
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
