"""What a tensor has beside its values: leaf or not, requires_grad, grad, hooks, addresses.

    x.is_leaf                 ->  the fake's answer, guarded where x comes from outside
    x.grad = None             ->  noted; the residual assigns it
    x.data = y                ->  noted (see data_assignments)
    x.requires_grad_()        ->  a node, where the leaf stays in the graph; else a break: compilers return none
                                  of a leaf from outside a note (see grad_flags)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.guards.tensor_meta import tensor_meta
from stator.heap.tracker import VariableTracker
from stator.interp.frame import Raised
from stator.interp.services import VM
from stator.interp.tensors import data_assignments
from stator.interp.tensors.grad_flags import may_be_noted, note
from stator.interp.tensors.tensor_copies import set_flag
from stator.shapes.symbolic_values import specialise
from stator.source import Attr, CallOf, Pinned
from stator.strategy import Strategy

NOT_NOTED = object()
_LEAF = torch._C.TensorBase.is_leaf.__get__
_NODE = torch._C.TensorBase.grad_fn.__get__
_RETAINS = torch._C.TensorBase.retains_grad.__get__
ADDRESSES = frozenset({"_version", "_cdata", "_python_dispatch", "data_ptr"})
_AUTOGRAD = frozenset({"_backward_hooks", "_post_accumulate_grad_hooks", "output_nr", "_grad_fn", "retains_grad",
                       "grad_dtype"})


def guard_offsets(vm: VM) -> None:
    """Guard where each input met so far lies in its storage."""
    for graph_input in vm.recorder.inputs:
        if graph_input.tensor is not None:  # not a number
            meta = tensor_meta(graph_input.tensor, with_offset=True)
            vm.heap.guard(graph_input.source, Kind.TENSOR, dataclasses.replace(
                vm.recorder.meta_of(graph_input.tensor, graph_input.fake), storage_offset=meta.storage_offset))


def guard_storage_sizes(vm: VM) -> None:
    """Guard how large the storages of the inputs met so far are."""
    for graph_input in vm.recorder.inputs:
        if graph_input.tensor is not None:
            vm.heap.guard(CallOf(Pinned(storage_size), (graph_input.source,)), Kind.FRESH_CALL,
                          storage_size(graph_input.tensor))


def storage_size(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        size: int = tensor.untyped_storage().nbytes()
        return size


def read(vm: VM, fake: Any, name: str) -> Any:
    """The value of a bookkeeping attribute; NOT_NOTED where `name` is none."""
    tracker = vm.heap.by_standin.get(id(fake))
    if name == "grad" or name == "_grad":
        return _read_grad(vm, fake, tracker)
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
        vm.autograd.nodes[id(node)] = node  # that it is not None may be asked, nothing more
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


def is_leaf(vm: VM, fake: Any, tracker: VariableTracker) -> bool:
    with torch._C.DisableTorchFunction():
        if tracker is None:
            return fake.is_leaf
        leaf, wants_grad = tracker.original.is_leaf, tracker.original.requires_grad
    if wants_grad:  # otherwise it is a leaf, and requires_grad is guarded
        vm.heap.guard(CallOf(Pinned(_LEAF), (tracker.source,)), Kind.FRESH_CALL, leaf)
    return leaf


def _read_grad(vm: VM, fake: Any, tracker: VariableTracker) -> Any:
    if id(fake) in vm.tensors.grads:
        return vm.tensors.grads[id(fake)][1]
    if not is_leaf(vm, fake, tracker) and not keeps_gradient(vm, fake, tracker):
        raise Break("SB016", "grad of a tensor that is no leaf, which warns", asks_caller=True)
    if tracker is None:
        return None
    with torch._C.DisableTorchFunction():
        grad = tracker.original.grad
    return vm.heap.adopt(grad, Attr(tracker.source, "grad"))


def keeps_gradient(vm: VM, fake: Any, tracker: VariableTracker) -> bool:
    """Whether retain_grad() was called on a tensor that is no leaf; what the trace itself has made had no backward."""
    if tracker is None:
        return id(fake) in vm.autograd.retained
    with torch._C.DisableTorchFunction():
        kept = tracker.original.retains_grad
    if kept:
        vm.heap.guard(CallOf(Pinned(_RETAINS), (tracker.source,)), Kind.FRESH_CALL, True)
    return kept


# ---------------------------------------------------------------------- changes


def write(vm: VM, fake: FakeTensor, name: str, value: object) -> bool:
    """Assign a bookkeeping attribute; False where `name` is none."""
    if name == "requires_grad":
        set_requires_grad(vm, fake, value)
        return True
    if name == "grad":
        _write_grad(vm, fake, value)
        return True
    if name == "data":
        data_assignments.assign(vm, fake, value)
        return True
    return False


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
        note(vm, fake, value)
        return
    if allowed:
        raise Break("SB016", f"requires_grad becomes {value}")
    vm.native_unhooked(torch.Tensor.requires_grad_, (fake, value))  # raises what eager raises
    raise Break("SB016", f"requires_grad becomes {value}")


def may_become_leaf(vm: VM, fake: FakeTensor) -> bool:
    """Whether a tensor of the graph can be made a leaf there: as long as it stays there (see require_inner_leaves)."""
    return Strategy.NEW_LEAVES not in vm.turned_off and vm.heap.by_standin.get(id(fake)) is None \
        and vm.recorder.scope.enclosing is None and torch.is_grad_enabled()


def require_inner_leaves(vm: VM, outputs: list[Any]) -> None:
    """A compiled graph returns no leaves of its own, and no gradient where none of its inputs has one: cut it there."""
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
            node.meta["is_seam"] = True


def _write_grad(vm: VM, fake: Any, value: Any) -> None:
    if value is not None:
        if type(value) is not FakeTensor or value is fake:
            raise Break("SB006", f"assignment of a {type(value).__name__} to Tensor.grad")
        if (value.shape, value.dtype, value.device) != (fake.shape, fake.dtype, fake.device):
            raise Break("SB006", "assignment of a tensor of another kind to Tensor.grad")
    tracker = vm.heap.by_standin.get(id(fake))
    if tracker is None or not is_leaf(vm, fake, tracker):
        raise Break("SB016", "assignment to grad of a tensor that is no leaf from outside")
    vm.tensors.grads[id(fake)] = (fake, value)
