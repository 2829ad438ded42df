"""Rules for copies of tensors.   copy.deepcopy({"w": w})["w"]  ->  w.detach().clone();  copy.copy(x)  ->  x.data

A deep copy has a storage of its own, as long as the original's, and two views of one storage stay two views of one.
A clone says the same of a tensor that fills a storage which is nobody else's; of any other, and of a leaf that wants a
gradient, CPython makes the copy (see tensor_copies).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.metadata.propagation import ExactNeeded
from stator.guards.guard import Kind
from stator.interp.frame import Frame
from stator.interp.objects.attributes import tensor_class
from stator.interp.rule_registry import INTERPRETED, rule
from stator.interp.tensors.tensor_bookkeeping import set_requires_grad
from stator.interp.tensors.tensor_copies import copy_before_graph, memo_of
from stator.interp.torch_function_protocol import refuse_patched
from stator.interp.vm import VM
from stator.source import CallOf, Pinned
from stator.strategy import Strategy

_ONLY_USE = 2  # the tensor's, and that of the storage object through which we ask

_DETACH: Any = torch.Tensor.detach  # type: ignore[attr-defined]


def is_copied_by_clone(tensor: torch.Tensor) -> bool:
    """A pure reader for guards: whether a detached clone is all that a deep copy of a tensor would be."""
    with torch._C.DisableTorchFunction():
        if type(tensor) is not torch.Tensor or tensor.__dict__:
            return False
        return _fills_its_own_storage(tensor) and tensor.is_leaf and tensor.grad is None


def _fills_its_own_storage(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() \
            or tensor.device.type not in ("cpu", "cuda") or tensor.storage_offset() or not _is_dense(tensor):
        return False
    storage = tensor.untyped_storage()
    return storage.nbytes() == tensor.numel() * tensor.element_size() \
        and torch._C._storage_Use_Count(storage._cdata) == _ONLY_USE


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie one beside the other in some order of the dimensions, which a clone keeps."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride != expected:  # also of a dimension of one element: a clone gives it a stride of its own
            return False
        expected *= size
    return True


def is_bare(tensor: torch.Tensor) -> bool:
    """A pure reader for guards: whether a tensor has nothing beside its values."""
    with torch._C.DisableTorchFunction():
        return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.__dict__ \
            and not tensor.is_quantized and not tensor.is_conj() and not tensor.is_neg()


@rule(copy.copy)
def _copy(vm: VM, x: Any) -> Any:
    """Another tensor on the same storage; of anything else, what copy.copy does is interpreted."""
    if type(x) is not FakeTensor or tensor_class(vm, x) is not torch.Tensor:
        return INTERPRETED
    for name in ("__copy__", "__reduce_ex__"):
        refuse_patched(vm, name)
    vm.recorder.refuse_tangents("copy.copy of a tensor")
    tracker = vm.heap.by_standin.get(id(x))
    if tracker is not None:
        vm.heap.guard(CallOf(Pinned(is_bare), (tracker.source,)), Kind.FRESH_CALL, is_bare(tracker.original))
    with torch._C.DisableTorchFunction():
        plain = not x.requires_grad and x.layout is torch.strided and not x.is_quantized \
            and not x.is_conj() and not x.is_neg()
    if not plain or vm.tensors.attributes.get(id(x)) or tracker is not None and not is_bare(tracker.original):
        raise Break("SB005", "copy.copy of a tensor with more than values")
    return vm.torch_attribute(x, "data", torch._C.TensorBase.data)


@rule(torch.nn.Parameter.__deepcopy__)
def _deepcopy_parameter(vm: VM, self: Any, memo: Any) -> Any:
    require_deepcopy(vm)
    if tensor_class(vm, self) is not torch.nn.Parameter:
        raise Break("SB005", "copy.deepcopy of a Parameter of a class of its own")
    return copy_before_graph(vm, self, memo)


def require_deepcopy(vm: VM) -> None:
    """copy.deepcopy itself asks: it has looked into the memo, and adds the copy."""
    vm.recorder.refuse_tangents("copy.deepcopy of a tensor")
    if vm.frame.code is not copy.deepcopy.__code__:
        raise Break("SB005", "__deepcopy__ of a tensor called by the program itself")


def _is_own_memo(vm: VM, memo: object) -> bool:
    """Whether copy.deepcopy() has made a memo in this trace: nobody then looks for storages in it."""
    frame, made_in = vm.frame, None
    while frame is not None:
        if type(frame) is Frame and any(each is memo for each in frame.locals):
            made_in = frame.code
        frame = frame.caller()
    return made_in is copy.deepcopy.__code__ and id(memo) not in vm.heap.by_standin


@rule(torch.Tensor.__deepcopy__)
def _deepcopy(vm: VM, self: Any, memo: Any) -> Any:
    """A clone, or a copy made before the graph, or one native step."""
    require_deepcopy(vm)
    if Strategy.COPIED_STORAGES in vm.turned_off or not _is_own_memo(vm, memo):
        raise Break("SB005", "copy.deepcopy of a tensor whose storage the memo has, or is to have")
    fake = self
    tracker = vm.heap.by_standin.get(id(fake))
    if tensor_class(vm, fake) is not torch.Tensor or vm.tensors.attributes.get(id(fake)) \
            or id(fake) in vm.tensors.grads:
        raise Break("SB005", "copy.deepcopy of a tensor with more than values")
    if vm.recorder.propagation.served:
        raise ExactNeeded
    if id(fake) in vm.recorder.copies:
        return copy_before_graph(vm, fake, memo)
    with torch._C.DisableTorchFunction():
        if any(type(size) is not int for size in fake.shape):
            raise Break("SB005", "copy.deepcopy of a tensor of varying size")
        plain = fake.is_leaf and _fills_its_own_storage(fake)
        wants_grad = fake.requires_grad
    if tracker is not None and plain:
        plain = is_copied_by_clone(tracker.original)
        vm.heap.guard(CallOf(Pinned(is_copied_by_clone), (tracker.source,)), Kind.FRESH_CALL, plain)
    if tracker is not None and (wants_grad or not plain):
        require_plain_leaf(tracker.original)
        return copy_before_graph(vm, fake, memo)
    if not plain:
        raise Break("SB005", "copy.deepcopy of a tensor that shares its storage or does not fill it")
    memo_of(vm, memo).add_storage(fake, before=False)
    made = vm.torch_call(_DETACH, (fake,), None) if wants_grad else fake
    made = vm.torch_call(torch.clone, (made,), None)
    if wants_grad:
        set_requires_grad(vm, made, True)
    return made


def require_plain_leaf(tensor: torch.Tensor) -> None:
    """A copy takes a gradient and attributes along, which the trace would not know of."""
    with torch._C.DisableTorchFunction():
        if not tensor.is_leaf or tensor.grad is not None or tensor.__dict__:
            raise Break("SB005", "copy.deepcopy of a tensor with more than values")
