"""Rules for methods and constructors of Tensor that are no computation: flags, storages, old constructors, copies.

copy.deepcopy(w) is w.detach().clone() for a tensor that fills its own storage; of others, and of a leaf that requires
grad, CPython makes the copy (see interp/tensors/tensor_copies).  copy.copy(x) is x.data.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy
import torch
import torch.overrides
import torch.utils._python_dispatch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.graph.metadata.propagation import ExactNeeded
from stator.heap.adopt.outside_arrays import FED
from stator.host.value_kinds import is_a
from stator.interp.arrays.array_tensors import from_array
from stator.interp.frame import Frame, outward
from stator.interp.objects.attributes import tensor_class
from stator.interp.rule_registry import INTERPRETED, refuse, rule, suspending_rule
from stator.interp.tensors.tensor_bookkeeping import guard_offsets, set_requires_grad
from stator.interp.tensors.tensor_copies import copy_before_graph, memo_of
from stator.interp.tensors.tensor_items import SEQUENCES, holds_numbers, make_tensor
from stator.interp.torch_function_protocol import refuse_patched
from stator.interp.vm import VM
from stator.library.torch.variables import DETACH, is_plain
from stator.shapes.symbolic_values import SYMBOLIC

_TensorBase: Any = torch._C.TensorBase


refuse(torch.nn.Buffer, code="SB016", detail="a Parameter or Buffer made inside the captured code")
refuse(torch.Tensor.storage, torch.Tensor._typed_storage, _TensorBase.untyped_storage, torch.Tensor.storage_type,
       torch.Tensor.is_shared, torch.Tensor.share_memory_, code="SB005", detail="the storage of a tensor")
refuse(torch.utils._python_dispatch.TorchDispatchMode.__enter__,
       torch.utils._python_dispatch.TorchDispatchMode.__exit__, code="SB005", detail="a mode that sees every operation")
_OF_DTYPE = (torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.LongTensor, torch.IntTensor,
             torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor)
_OF_NUMPY = FED - {numpy.float16, numpy.float32}  # which constructors of integers do not take
_NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool, *_OF_NUMPY})
_SMALL = 127
_ONLY_USE = 2  # the tensor's, and that of the storage object through which we ask


@rule(_TensorBase.storage_offset)
def _storage_offset(vm: VM, tensor: object, /) -> Any:
    """Guards leave offsets open until someone asks; a view's offset comes from one of the inputs met so far."""
    guard_offsets(vm)
    return vm.torch_call(_TensorBase.storage_offset, (tensor,), {})


@rule(_TensorBase.requires_grad_)
def _requires_grad(vm: VM, tensor: object, /, requires_grad: object = True) -> Any:
    set_requires_grad(vm, tensor, requires_grad)
    return tensor


@rule(_TensorBase._is_view)
def _is_view(vm: VM, fake: Any, /) -> bool:
    if vm.heap.by_standin.get(id(fake)) is not None:
        raise Break("SB005", "whether a tensor from outside is a view")
    if vm.recorder.propagation.served:
        raise ExactNeeded
    with torch._C.DisableTorchFunction():
        return fake._is_view()


@rule(torch.Tensor, *_OF_DTYPE)
def _construct(vm: VM, callee: Any, /, *args: Any, **kwargs: object) -> Any:
    """Sizes make an uninitialised tensor, a list one of its numbers; of a tensor or an array the memory is shared."""
    vm.heap.expose_deep(args)
    if len(args) == 1 and type(args[0]) is range:
        args = list(args[0]),
    options = {"dtype": torch.get_default_dtype() if callee is torch.Tensor else callee.dtype, "device": "cpu"}
    if kwargs:
        raise Break("SB001", f"{callee.__name__}() with keyword arguments")
    if all(type(arg) is int or type(arg) is torch.SymInt for arg in args):
        return vm.torch_call(torch.empty, (list(args) or (0,),), options)
    if len(args) == 1 and type(args[0]) is torch.Size:
        return vm.torch_call(torch.empty, (tuple(args[0]),), options)
    if len(args) == 1 and is_a(args[0], (list, tuple)) and _numbers(args[0]):
        return make_tensor(vm, torch.tensor, (_python_numbers(args[0]),), options)
    if len(args) == 1 and is_plain(vm, args[0]) and (
            callee is torch.Tensor or args[0].dtype is callee.dtype and args[0].device.type == "cpu"):
        return vm.torch_call(torch.ops.aten.alias.default, (args[0],), {})
    if len(args) == 1 and type(args[0]) is numpy.ndarray and args[0].ndim and args[0].flags.writeable:
        return from_array(vm, torch.as_tensor, args, options)
    raise Break("SB001", f"{callee.__name__}() of something else than sizes, numbers, a tensor or an array")


def _numbers(value: Any) -> bool:
    return all(_numbers(item) if type(item) in (list, tuple) else type(item) in _NUMBERS for item in value)


def _python_numbers(value: Any) -> Any:
    """A graph holds no numpy scalars; the tensor's dtype is its constructor's, whatever theirs is."""
    plain = [_python_numbers(item) if type(item) in (list, tuple) else item.item() if type(item) in _OF_NUMPY else item
             for item in value]
    return tuple(plain) if is_a(value, tuple) else plain


@rule(_TensorBase.new)
def _new_like(vm: VM, like: object, /, *args: Any, **kwargs: object) -> Any:
    """x.new(y.shape): a graph holds sizes as a plain tuple, which `new` takes for the numbers of the tensor."""
    vm.heap.expose_deep((like, *args))
    sizes = tuple(args[0]) if len(args) == 1 and type(args[0]) is torch.Size else args
    if all(type(size) is int or type(size) is torch.SymInt for size in sizes) and "size" not in kwargs:
        return vm.torch_call(_TensorBase.new_empty, (like, sizes or (0,)), kwargs)
    if len(args) == 1 and not kwargs and (made := _of_open_numbers(vm, like, args[0], {})) is not None:
        return made
    return vm.torch_call(_TensorBase.new, (like, *args), kwargs)


@rule(_TensorBase.new_tensor)
def _new_tensor(vm: VM, like: object, /, *args: object, **kwargs: object) -> Any:
    vm.heap.expose_deep((like, *args))
    if len(args) == 1 and (made := _of_open_numbers(vm, like, args[0], kwargs)) is not None:
        return made
    return vm.torch_call(_TensorBase.new_tensor, (like, *args), kwargs, asked=True)


def _of_open_numbers(vm: VM, like: Any, data: object, kwargs: dict[str, Any]) -> Any:
    """A tensor of numbers some of which are open, of the dtype and on the device of another; None for others."""
    if type(like) is not FakeTensor or not (type(data) in SYMBOLIC or type(data) in SEQUENCES and holds_numbers(data)):
        return None
    given = {name: value for name, value in kwargs.items() if value is not None}
    return make_tensor(vm, torch.tensor, (data,), {"dtype": like.dtype, "device": like.device, **given})


@rule(_TensorBase.coalesce, _TensorBase.is_coalesced)
def _reader_of_coalescing(vm: VM, callee: object, fake: Any, /) -> Any:
    """Whether a sparse tensor lists each place once, and is what coalesce() gives, its values decide."""
    if type(fake) is FakeTensor and fake.layout is torch.sparse_coo:
        tracker = vm.heap.by_standin.get(id(fake))
        if tracker is None or vm.recorder.version_of(fake):
            raise Break("SB004", "whether a sparse tensor is coalesced")
        answer = _TensorBase.is_coalesced(tracker.original)
        vm.heap.guard_call(_TensorBase.is_coalesced, answer, tracker.source)
    return vm.torch_call(callee, (fake,), {}, asked=True)


@suspending_rule(torch._shape_as_tensor)
def _shape_as_tensor(vm: VM, cont: Any, callee: object, tensor: Any, /) -> None:
    """A tensor of sizes, which are numbers of the trace."""
    if vm.concerned((tensor,)):
        return vm.give(vm.ask_modes(callee, (tensor,)), cont)
    vm.call(torch.tensor, (list(tensor.shape),), {"dtype": torch.int64, "device": "cpu"}, cont)


@rule(_TensorBase.random_)
def _random_between(vm: VM, tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
    """x.random_(-3, 5): compilers cannot name the operator that does it, named `from`; randint draws the same."""
    names = [name for name in ("from", "to") if name in kwargs]
    bounds = (*args, *(kwargs[name] for name in names))
    if vm.recorder.backend.in_order or len(bounds) != 2:
        return vm.torch_call(_TensorBase.random_, (tensor, *args), kwargs, asked=True)
    if not all(type(bound) is int and abs(bound) <= _SMALL for bound in bounds) or bounds[0] < 0 and \
            tensor.dtype in (torch.bool, torch.uint8) or bounds[1] > 2 and tensor.dtype is torch.bool:
        raise Break("SB001", "Tensor.random_ between bounds that not every number type has")
    options = {name: value for name, value in kwargs.items() if name not in names}
    drawn = vm.torch_call(torch.randint, (*bounds, tuple(tensor.shape)), {"device": tensor.device, **options})
    return vm.torch_call(_TensorBase.copy_, (tensor, drawn), None)


# The range is not recorded: the operators inside it may be fused with others
rule(torch.autograd.profiler.record_function)(lambda vm, /, *args, **kwargs: _Range())


class _Range(contextlib.nullcontext[None], contextlib.ContextDecorator):
    """A context, and a decorator, that does nothing."""


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
        vm.heap.guard_call(is_bare, is_bare(tracker.original), tracker.source)
    with torch._C.DisableTorchFunction():
        plain = not x.requires_grad and x.layout is torch.strided and not x.is_quantized \
            and not x.is_conj() and not x.is_neg()
    if not plain or vm.tensors.attributes.get(id(x)) or tracker is not None and not is_bare(tracker.original):
        raise Break("SB005", "copy.copy of a tensor with more than values")
    return vm.torch_attribute(x, "data", torch._C.TensorBase.data)


@rule(torch.nn.Parameter.__deepcopy__)
def _deepcopy_parameter(vm: VM, self: object, memo: object) -> Any:
    require_deepcopy(vm)
    if tensor_class(vm, self) is not torch.nn.Parameter:
        raise Break("SB005", "copy.deepcopy of a Parameter of a class of its own")
    return copy_before_graph(vm, self, memo)


def require_deepcopy(vm: VM) -> None:
    """copy.deepcopy itself asks: it has looked into the memo, and adds the copy."""
    vm.recorder.refuse_tangents("copy.deepcopy of a tensor")
    if vm.running.code is not copy.deepcopy.__code__:
        raise Break("SB005", "__deepcopy__ of a tensor called by the program itself")


def _is_own_memo(vm: VM, memo: object) -> bool:
    """Whether copy.deepcopy() has made a memo in this trace: nobody then looks for storages in it."""
    made_in = None
    for frame in outward(vm.frame):
        if type(frame) is Frame and any(each is memo for each in frame.locals):
            made_in = frame.code
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
        has_gradient = fake.requires_grad
    if tracker is not None and plain:
        plain = is_copied_by_clone(tracker.original)
        vm.heap.guard_call(is_copied_by_clone, plain, tracker.source)
    if tracker is not None and (has_gradient or not plain):
        tensor = tracker.original
        with torch._C.DisableTorchFunction():  # a copy takes a gradient and attributes along, unknown to the trace
            if not tensor.is_leaf or tensor.grad is not None or tensor.__dict__:
                raise Break("SB005", "copy.deepcopy of a tensor with more than values")
        return copy_before_graph(vm, fake, memo)
    if not plain:
        raise Break("SB005", "copy.deepcopy of a tensor that shares its storage or does not fill it")
    memo_of(vm, memo).add_storage(fake, before=False)
    made = vm.torch_call(DETACH, (fake,), None) if has_gradient else fake
    made = vm.torch_call(torch.clone, (made,), None)
    if has_gradient:
        set_requires_grad(vm, made, True)
    return made
