"""Rules for methods and constructors of Tensor that are no computation: flags, hooks, storages, old constructors."""

from __future__ import annotations

from typing import Any

import numpy
import torch
import torch.overrides
import torch.utils._python_dispatch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.autograd.autograd_boundaries import retain_gradient
from stator.graph.metadata.propagation import ExactNeeded
from stator.guards.guard import Kind
from stator.heap.adopt.outside_arrays import FED
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import rule
from stator.interp.tensors.made_tensors import SEQUENCES, holds_numbers, make_tensor
from stator.interp.tensors.tensor_bookkeeping import guard_offsets, is_leaf, set_requires_grad
from stator.interp.vm import VM
from stator.library.torch.derivatives.autograd_boundaries import require_plain
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import CallOf, Pinned

_TensorBase: Any = torch._C.TensorBase


def _breaks(code: str, detail: str) -> Any:
    def stop(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        raise Break(code, detail)
    return stop


rule(torch.nn.Buffer)(
    _breaks("SB016", "a Parameter or Buffer made inside the captured code"))
rule(torch.Tensor.storage, torch.Tensor._typed_storage, _TensorBase.untyped_storage, torch.Tensor.storage_type,
     torch.Tensor.is_shared, torch.Tensor.share_memory_)(_breaks("SB005", "the storage of a tensor"))
rule(torch.utils._python_dispatch.TorchDispatchMode.__enter__, torch.utils._python_dispatch.TorchDispatchMode.__exit__)(
    _breaks("SB005", "a mode that sees every operation"))


@rule(_TensorBase.storage_offset)
def _storage_offset(vm: VM, args: Any, kwargs: Any) -> Any:
    """Guards leave offsets open until someone asks; a view's offset comes from one of the inputs met so far."""
    guard_offsets(vm)
    return vm.torch_call(_TensorBase.storage_offset, args, kwargs)


@rule(_TensorBase.requires_grad_)
def _requires_grad(vm: VM, args: Any, kwargs: Any) -> Any:
    value = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    set_requires_grad(vm, args[0], value)
    return args[0]


@rule(_TensorBase.retain_grad)
def _retain_grad(vm: VM, fake: Any, /) -> Any:
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


def is_used(node: Any) -> bool:
    """Whether something that can be differentiated was computed from it."""
    with torch._C.DisableTorchFunction():
        return any(type(leaf) is FakeTensor and leaf.requires_grad for user in node.users
                   for leaf in pytree.tree_leaves(user.meta.get("example_value")))


@rule(_TensorBase._is_view)
def _is_view(vm: VM, args: Any, kwargs: Any) -> Any:
    if vm.heap.by_standin.get(id(args[0])) is not None:
        raise Break("SB005", "whether a tensor from outside is a view")
    if vm.recorder.propagation.served:
        raise ExactNeeded
    with torch._C.DisableTorchFunction():
        answer = args[0]._is_view()
    return answer


# ---------------------------------------------------------------------- torch.Tensor(...), torch.FloatTensor(...)


def _constructor(cls: Any, dtype: torch.dtype | None) -> Any:
    def construct(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        """Sizes make an uninitialised tensor, a list makes one of its numbers."""
        vm.heap.expose_deep(args)
        options = {"dtype": dtype or torch.get_default_dtype(), "device": "cpu"}
        if kwargs:
            raise Break("SB001", f"{cls.__name__}() with keyword arguments")
        if all(type(arg) is int or type(arg) is torch.SymInt for arg in args):
            return vm.give(vm.torch_call(torch.empty, (args or (0,),), options), cont)
        if len(args) == 1 and type(args[0]) is torch.Size:
            return vm.give(vm.torch_call(torch.empty, (tuple(args[0]),), options), cont)
        if len(args) == 1 and is_a(args[0], (list, tuple)) and _numbers(args[0]):
            return vm.give(make_tensor(vm, torch.tensor, (_python_numbers(args[0]),), options), cont)
        raise Break("SB001", f"{cls.__name__}() of something else than sizes or numbers")
    return construct


_OF_NUMPY = FED - {numpy.float16, numpy.float32}  # which constructors of integers do not take
_NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool, *_OF_NUMPY})


def _numbers(value: Any) -> bool:
    return all(_numbers(item) if type(item) in (list, tuple) else type(item) in _NUMBERS for item in value)


def _python_numbers(value: Any) -> Any:
    """A graph holds no numpy scalars; the tensor's dtype is its constructor's, whatever theirs is."""
    plain = [_python_numbers(item) if type(item) in (list, tuple) else item.item() if type(item) in _OF_NUMPY else item
             for item in value]
    return tuple(plain) if is_a(value, tuple) else plain


rule(torch.Tensor)(_constructor(torch.Tensor, None))
for _name, _dtype in (("FloatTensor", torch.float32), ("DoubleTensor", torch.float64), ("HalfTensor", torch.float16),
                      ("LongTensor", torch.int64), ("IntTensor", torch.int32), ("ShortTensor", torch.int16),
                      ("CharTensor", torch.int8), ("ByteTensor", torch.uint8), ("BoolTensor", torch.bool)):
    rule(getattr(torch, _name))(_constructor(getattr(torch, _name), _dtype))


@rule(_TensorBase.new)
def _new_like(vm: VM, args: Any, kwargs: Any) -> Any:
    """x.new(y.shape): a graph holds sizes as a plain tuple, which `new` takes for the numbers of the tensor."""
    vm.heap.expose_deep(args)
    like, *rest = args
    sizes = tuple(rest[0]) if len(rest) == 1 and type(rest[0]) is torch.Size else tuple(rest)
    if all(type(size) is int or type(size) is torch.SymInt for size in sizes) and "size" not in kwargs:
        return vm.torch_call(_TensorBase.new_empty, (like, sizes or (0,)), kwargs)
    if len(rest) == 1 and not kwargs and (made := _of_open_numbers(vm, like, rest[0], {})) is not None:
        return made
    return vm.torch_call(_TensorBase.new, args, kwargs)


@rule(_TensorBase.new_tensor)
def _new_tensor(vm: VM, args: Any, kwargs: Any) -> Any:
    vm.heap.expose_deep(args)
    if len(args) == 2 and (made := _of_open_numbers(vm, args[0], args[1], kwargs)) is not None:
        return made
    return vm.torch_call(_TensorBase.new_tensor, args, kwargs, asked=True)


def _of_open_numbers(vm: VM, like: Any, data: Any, kwargs: dict[str, Any]) -> Any:
    """A tensor of numbers some of which are open, of the dtype and on the device of another; None for others."""
    if type(like) is not FakeTensor or not (type(data) in SYMBOLIC or type(data) in SEQUENCES and holds_numbers(data)):
        return None
    given = {name: value for name, value in kwargs.items() if value is not None}
    return make_tensor(vm, torch.tensor, (data,), {"dtype": like.dtype, "device": like.device, **given})


def _reader_of_coalescing(method: Any) -> Any:
    def run(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        """Whether a sparse tensor lists each place once, and is what coalesce() gives, its values decide."""
        fake = args[0]
        if type(fake) is FakeTensor and fake.layout is torch.sparse_coo:
            tracker = vm.heap.by_standin.get(id(fake))
            if tracker is None or vm.recorder.version_of(fake):
                raise Break("SB004", "whether a sparse tensor is coalesced")
            answer = _TensorBase.is_coalesced(tracker.original)
            vm.heap.guard(CallOf(Pinned(_TensorBase.is_coalesced), (tracker.source,)), Kind.FRESH_CALL, answer)
        vm.give(vm.torch_call(method, args, kwargs, asked=True), cont)
    return run


for _method in (_TensorBase.coalesce, _TensorBase.is_coalesced):
    rule(_method)(_reader_of_coalescing(_method))


@rule(torch._shape_as_tensor, arity=(1,))
def _shape_as_tensor(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    """A tensor of sizes, which are numbers of the trace."""
    if vm.concerned(args):
        return vm.give(vm.ask_modes(torch._shape_as_tensor, args), cont)
    vm.call(torch.tensor, (list(args[0].shape),), {"dtype": torch.int64, "device": "cpu"}, cont)


@rule(_TensorBase.random_)
def _random_between(vm: VM, args: Any, kwargs: Any) -> Any:
    """x.random_(-3, 5): compilers cannot say the operator that does it, named `from`; randint draws the same."""
    names = [name for name in ("from", "to") if name in kwargs]
    bounds = (*args[1:], *(kwargs[name] for name in names))
    if vm.recorder.backend.in_order or len(bounds) != 2:
        return vm.torch_call(_TensorBase.random_, args, kwargs, asked=True)
    if not all(type(bound) is int and abs(bound) <= _SMALL for bound in bounds) or bounds[0] < 0 and \
            args[0].dtype in (torch.bool, torch.uint8) or bounds[1] > 2 and args[0].dtype is torch.bool:
        raise Break("SB001", "Tensor.random_ between bounds that not every number type has")
    options = {name: value for name, value in kwargs.items() if name not in names}
    drawn = vm.torch_call(torch.randint, (*bounds, tuple(args[0].shape)), {"device": args[0].device, **options})
    return vm.torch_call(_TensorBase.copy_, (args[0], drawn), None)


_SMALL = 127


# ---------------------------------------------------------------------- profiling ranges: names for a profiler


@rule(torch.autograd.profiler.record_function)
def _record_function(vm: VM, args: Any, kwargs: Any) -> Any:
    """The range is not recorded: the operators inside it may be fused with others."""
    return _Range()


class _Range:
    """A context that does nothing."""

    def __enter__(self) -> _Range:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        return None
