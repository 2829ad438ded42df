"""Rules for methods and constructors of Tensor that are no computation: flags, hooks, storages, old constructors."""

from __future__ import annotations

from typing import Any

import numpy
import torch
import torch.overrides
import torch.utils._python_dispatch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.autograd.autograd_boundaries import retain_gradient
from stator.graph.metadata.propagation import ExactNeeded
from stator.guards.guard import Kind
from stator.heap.adopt.outside_arrays import FED
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import refuse, rule, suspending_rule
from stator.interp.tensors.tensor_bookkeeping import guard_offsets, is_leaf, set_requires_grad
from stator.interp.tensors.tensor_items import SEQUENCES, holds_numbers, make_tensor
from stator.interp.vm import VM
from stator.library.torch.derivatives.autograd_boundaries import require_plain
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import CallOf, Pinned

_TensorBase: Any = torch._C.TensorBase


refuse(torch.nn.Buffer, code="SB016", detail="a Parameter or Buffer made inside the captured code")
refuse(torch.Tensor.storage, torch.Tensor._typed_storage, _TensorBase.untyped_storage, torch.Tensor.storage_type,
       torch.Tensor.is_shared, torch.Tensor.share_memory_, code="SB005", detail="the storage of a tensor")
refuse(torch.utils._python_dispatch.TorchDispatchMode.__enter__,
       torch.utils._python_dispatch.TorchDispatchMode.__exit__, code="SB005", detail="a mode that sees every operation")


@rule(_TensorBase.storage_offset)
def _storage_offset(vm: VM, tensor: Any, /) -> Any:
    """Guards leave offsets open until someone asks; a view's offset comes from one of the inputs met so far."""
    guard_offsets(vm)
    return vm.torch_call(_TensorBase.storage_offset, (tensor,), {})


@rule(_TensorBase.requires_grad_)
def _requires_grad(vm: VM, tensor: Any, /, requires_grad: Any = True) -> Any:
    set_requires_grad(vm, tensor, requires_grad)
    return tensor


@rule(_TensorBase.retain_grad)
def _retain_grad(vm: VM, fake: FakeTensor, /) -> Any:
    """A node, at which compilers cut the graph: what they compile has one backward for all that is in it.

    Where the tensor has been used, its gradient is what comes back from those uses, too: no compiler gets the graph.
    """
    tracker = vm.heap.by_standin.get(id(fake))
    with torch._C.DisableTorchFunction():
        wants_grad = fake.requires_grad
    if not wants_grad:
        vm.native_unhooked(_TensorBase.retain_grad, (fake,))  # raises what eager raises
    if not is_leaf(vm, fake, tracker):
        if tracker is None and vm.recorder.scope.enclosing is None and is_used(vm.recorder.node_of(fake)):
            vm.recorder.keep_as_it_is()
        if tracker is not None:
            raise Break("SB016", "retain_grad()")
        require_plain(vm, "retain_grad()")
        vm.recorder.record("call_function", retain_gradient, (fake,), {}, None)
        vm.recorder.log.changes += 1
        vm.autograd.retained[id(fake)] = fake
    return None


def is_used(node: fx.Node) -> bool:
    """Whether something that can be differentiated was computed from it."""
    with torch._C.DisableTorchFunction():
        return any(type(leaf) is FakeTensor and leaf.requires_grad for user in node.users
                   for leaf in pytree.tree_leaves(user.meta.get("example_value")))


@rule(_TensorBase._is_view)
def _is_view(vm: VM, fake: Any, /) -> bool:
    if vm.heap.by_standin.get(id(fake)) is not None:
        raise Break("SB005", "whether a tensor from outside is a view")
    if vm.recorder.propagation.served:
        raise ExactNeeded
    with torch._C.DisableTorchFunction():
        return fake._is_view()


_OF_DTYPE = (torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.LongTensor, torch.IntTensor,
             torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor)


@rule(torch.Tensor, *_OF_DTYPE)
def _construct(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Sizes make an uninitialised tensor, a list makes one of its numbers."""
    vm.heap.expose_deep(args)
    options = {"dtype": torch.get_default_dtype() if callee is torch.Tensor else callee.dtype, "device": "cpu"}
    if kwargs:
        raise Break("SB001", f"{callee.__name__}() with keyword arguments")
    if all(type(arg) is int or type(arg) is torch.SymInt for arg in args):
        return vm.torch_call(torch.empty, (list(args) or (0,),), options)
    if len(args) == 1 and type(args[0]) is torch.Size:
        return vm.torch_call(torch.empty, (tuple(args[0]),), options)
    if len(args) == 1 and is_a(args[0], (list, tuple)) and _numbers(args[0]):
        return make_tensor(vm, torch.tensor, (_python_numbers(args[0]),), options)
    raise Break("SB001", f"{callee.__name__}() of something else than sizes or numbers")


# ---------------------------------------------------------------------- torch.Tensor(...), torch.FloatTensor(...)


_OF_NUMPY = FED - {numpy.float16, numpy.float32}  # which constructors of integers do not take
_NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool, *_OF_NUMPY})


def _numbers(value: Any) -> bool:
    return all(_numbers(item) if type(item) in (list, tuple) else type(item) in _NUMBERS for item in value)


def _python_numbers(value: Any) -> Any:
    """A graph holds no numpy scalars; the tensor's dtype is its constructor's, whatever theirs is."""
    plain = [_python_numbers(item) if type(item) in (list, tuple) else item.item() if type(item) in _OF_NUMPY else item
             for item in value]
    return tuple(plain) if is_a(value, tuple) else plain


@rule(_TensorBase.new)
def _new_like(vm: VM, like: Any, /, *args: Any, **kwargs: Any) -> Any:
    """x.new(y.shape): a graph holds sizes as a plain tuple, which `new` takes for the numbers of the tensor."""
    vm.heap.expose_deep((like, *args))
    sizes = tuple(args[0]) if len(args) == 1 and type(args[0]) is torch.Size else args
    if all(type(size) is int or type(size) is torch.SymInt for size in sizes) and "size" not in kwargs:
        return vm.torch_call(_TensorBase.new_empty, (like, sizes or (0,)), kwargs)
    if len(args) == 1 and not kwargs and (made := _of_open_numbers(vm, like, args[0], {})) is not None:
        return made
    return vm.torch_call(_TensorBase.new, (like, *args), kwargs)


@rule(_TensorBase.new_tensor)
def _new_tensor(vm: VM, like: Any, /, *args: Any, **kwargs: Any) -> Any:
    vm.heap.expose_deep((like, *args))
    if len(args) == 1 and (made := _of_open_numbers(vm, like, args[0], kwargs)) is not None:
        return made
    return vm.torch_call(_TensorBase.new_tensor, (like, *args), kwargs, asked=True)


def _of_open_numbers(vm: VM, like: Any, data: Any, kwargs: dict[str, Any]) -> Any:
    """A tensor of numbers some of which are open, of the dtype and on the device of another; None for others."""
    if type(like) is not FakeTensor or not (type(data) in SYMBOLIC or type(data) in SEQUENCES and holds_numbers(data)):
        return None
    given = {name: value for name, value in kwargs.items() if value is not None}
    return make_tensor(vm, torch.tensor, (data,), {"dtype": like.dtype, "device": like.device, **given})


@rule(_TensorBase.coalesce, _TensorBase.is_coalesced)
def _reader_of_coalescing(vm: VM, callee: Any, fake: Any, /) -> Any:
    """Whether a sparse tensor lists each place once, and is what coalesce() gives, its values decide."""
    if type(fake) is FakeTensor and fake.layout is torch.sparse_coo:
        tracker = vm.heap.by_standin.get(id(fake))
        if tracker is None or vm.recorder.version_of(fake):
            raise Break("SB004", "whether a sparse tensor is coalesced")
        answer = _TensorBase.is_coalesced(tracker.original)
        vm.heap.guard(CallOf(Pinned(_TensorBase.is_coalesced), (tracker.source,)), Kind.FRESH_CALL, answer)
    return vm.torch_call(callee, (fake,), {}, asked=True)


@suspending_rule(torch._shape_as_tensor)
def _shape_as_tensor(vm: VM, cont: Any, callee: Any, tensor: Any, /) -> None:
    """A tensor of sizes, which are numbers of the trace."""
    if vm.concerned((tensor,)):
        return vm.give(vm.ask_modes(callee, (tensor,)), cont)
    vm.call(torch.tensor, (list(tensor.shape),), {"dtype": torch.int64, "device": "cpu"}, cont)


@rule(_TensorBase.random_)
def _random_between(vm: VM, tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
    """x.random_(-3, 5): compilers cannot say the operator that does it, named `from`; randint draws the same."""
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


_SMALL = 127


# ---------------------------------------------------------------------- profiling ranges: names for a profiler


@rule(torch.autograd.profiler.record_function)
def _record_function(vm: VM, /, *args: Any, **kwargs: Any) -> Any:
    """The range is not recorded: the operators inside it may be fused with others."""
    return _Range()


class _Range:
    """A context that does nothing."""

    def __enter__(self) -> _Range:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        return None
