"""Arrays as tensors.   torch.from_numpy(values)  ->  an input of the graph on the memory of `values`

An outside array that the program has not changed is an input, whatever its size.  One made inside the trace becomes
a literal in the graph; where the tensor shares its memory, the array is from then on a name for that tensor.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.interp.frame import Raised
from stator.interp.services import VM
from stator.interp.tensors.tensor_bookkeeping import guard_offsets, guard_storage_sizes, storage_size
from stator.source import CallOf, Pinned

LITERAL_LIMIT = 4096  # elements of an array of the trace that become a literal in the graph
_DTYPES = {torch.from_numpy(numpy.zeros(0, name)).dtype: numpy.dtype(name) for name in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128")}
_TORCH_DTYPES = {theirs: ours for ours, theirs in _DTYPES.items()}


def shared_tensor(vm: VM, array: Any) -> Any:
    """A tensor on the memory of an array: an input of the graph, or what the array has become."""
    memory = vm.heap.arrays
    if memory.is_backed(array):
        tensor = tensor_of(vm, array, writes=True)
        _require_whole_storage(vm, tensor)
        return _beside(vm, tensor)
    tracker = vm.heap.by_standin.get(id(array))
    if tracker is None:
        return _literal(vm, array, shared=True)
    if not tracker.original.flags.writeable:
        raise Break("SB015", "a tensor on the memory of a read-only array, of which torch warns")
    if vm.heap.faces.has_changed(tracker):
        raise Break("SB006", "a tensor on the memory of an array that was changed")
    seen = id(array) in memory.inputs
    fake = _input(vm, tracker)
    vm.heap.faces.tie(tracker)
    return _beside(vm, own_face(vm, fake)) if seen else fake


def beside(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with a storage of its own on the same memory, as torch.from_numpy makes it: torch sees no overlap.

    A compiler that runs the graph on tensors of its own has one storage.
    """
    real = not torch._C._len_torch_dispatch_stack() and not torch._is_functional_tensor(tensor)
    return torch.from_numpy(tensor.data.numpy()) if real and type(tensor.data) is torch.Tensor else tensor.data


def _beside(vm: VM, fake: torch.Tensor) -> torch.Tensor:
    """Record it for `x.data`, whose writes pass version counters as these do."""
    made: torch.Tensor = own_face(vm, fake)
    node = vm.recorder.node_of(made)
    node.target, node.args = beside, node.args[:1]
    return made


def _require_whole_storage(vm: VM, fake: Any) -> None:
    """Break at a tensor on part of a storage: torch.from_numpy gives that part a storage of its own, at offset 0."""
    guard_offsets(vm)
    guard_storage_sizes(vm)
    offset = vm.torch_call(torch.Tensor.storage_offset, (fake,), None)
    if offset != 0 or storage_size(fake) != fake.numel() * fake.itemsize:
        raise Break("SB003", "a tensor on the memory of an array that is part of a tensor's storage")


def _input(vm: VM, tracker: VariableTracker) -> Any:
    """The graph's input on the memory of an outside array, as it was at the start."""
    inputs = vm.heap.arrays.inputs
    fake = inputs.get(id(tracker.standin))
    if fake is None:
        source = CallOf(Pinned(torch.from_numpy), (tracker.source,))
        fake = inputs[id(tracker.standin)] = vm.heap.adopt(real_tensor(tracker.original), source)
    elif vm.recorder.is_written(fake):
        raise Break("SB006", "a second tensor on the memory of an array that tensor operations have changed")
    return fake


def real_tensor(array: numpy.ndarray) -> torch.Tensor:
    """A real tensor on an array's memory, whatever modes the trace is in."""
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise Raised(error) from None


def _literal(vm: VM, array: Any, shared: bool) -> Any:
    """A tensor with the contents of an array of the trace; with `shared`, it is the array's contents from now on."""
    memory = vm.heap.arrays
    memory.expose(array)
    outside = vm.heap.by_standin.get(id(memory.root_of(array))) is not None
    if array.size > LITERAL_LIMIT or shared and (outside or not memory.owns_alone(array) or not array.flags.writeable):
        raise Break("SB003", "a tensor on the memory of an array that was made inside")
    with torch._C.DisableTorchFunction():
        dtype = real_tensor(array.copy()).dtype
    if shared and not array.flags.c_contiguous:
        raise Break("SB003", "a tensor on the memory of an array that is not contiguous")
    values = array.tolist()
    made = vm.torch_call(torch.tensor, (values,), {"dtype": dtype})
    if made.shape != array.shape:  # an empty array of several dimensions
        made = vm.torch_call(torch.Tensor.reshape, (made, array.shape), None)
    if shared:
        memory.back(array, own_face(vm, made))
        refill(array)
    return made


def copied_tensor(vm: VM, array: Any) -> Any:
    """A tensor with a copy of an array's contents."""
    memory = vm.heap.arrays
    tracker = vm.heap.by_standin.get(id(array))
    if memory.is_backed(array):
        source = tensor_of(vm, array)
    elif tracker is None or not tracker.original.flags.writeable or vm.heap.faces.has_changed(tracker):
        return _literal(vm, array, shared=False)
    else:
        source = _input(vm, tracker)
    return vm.torch_call(torch.clone, (source,), {"memory_format": torch.contiguous_format})


# ---------------------------------------------------------------------- arrays on the memory of tensors


def torch_dtype(dtype: Any) -> torch.dtype:
    found = _TORCH_DTYPES.get(dtype)
    if found is None:
        raise Break("SB003", f"an array of {dtype} as a tensor")
    return found


def numpy_dtype(dtype: torch.dtype) -> Any:
    """The type of an array on a tensor's memory; None where there is none."""
    return _DTYPES.get(dtype)


def new_array(vm: VM, fake: FakeTensor, like: object = None) -> ndarray:
    """An array of which the layout is known, and whose contents are those of a tensor."""
    if like is not None:
        fake = _laid_out(vm, fake, like)
    dtype = _DTYPES[fake.dtype]
    itemsize = dtype.itemsize
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(fake.shape, fake.stride(), strict=True)) \
        if fake.numel() else 0
    memory = numpy.zeros(size, dtype)
    array = numpy.ndarray(tuple(fake.shape), dtype, memory, 0, tuple(stride * itemsize for stride in fake.stride()))
    refill(array)
    vm.heap.arrays.back(array, fake)
    return array


def own_face(vm: VM, fake: FakeTensor) -> Any:
    """Another tensor on the same memory: it stays there when the first one moves, and counts its own writes."""
    return vm.torch_attribute(fake, "data", torch.Tensor.data)


def refill(array: numpy.ndarray) -> None:
    """Contents that mean nothing, but that numpy can work with: indexes in range, matrices that have an inverse."""
    if array.dtype.kind not in "fc":
        array[...] = 0
    elif array.ndim > 1 and array.shape[-1] == array.shape[-2]:
        array[...] = numpy.eye(array.shape[-1])
    else:
        array[...] = 1


def _laid_out(vm: VM, fake: Any, like: Any) -> Any:
    """The tensor in the layout that numpy gives its result, strides of single items included."""
    if not like.size:
        return fake
    strides = tuple(stride // like.itemsize for stride in like.strides)
    if any(size != 1 and mine != theirs for size, mine, theirs in zip(like.shape, fake.stride(), strides, strict=True)):
        order = [] if like.flags.c_contiguous else sorted(range(like.ndim), key=lambda dim: -abs(like.strides[dim]))
        fake = vm.torch_call(torch.permute, (fake, order), None) if order else fake
        fake = vm.torch_call(torch.Tensor.contiguous, (fake,), None)
        fake = vm.torch_call(torch.permute, (fake, [order.index(i) for i in range(like.ndim)]), None) if order else fake
    return fake if fake.stride() == strides else vm.torch_call(torch.as_strided, (fake, like.shape, strides), None)


def feed(vm: VM, array: object) -> None:
    """Make an outside array whose contents change from call to call an input of the graph."""
    memory = vm.heap.arrays
    root = memory.root_of(array)
    tracker = vm.heap.by_standin.get(id(root))
    if tracker is None or tracker.shape is not ShadowKind.ARRAY or tracker.exposed or id(root) in memory.backed \
            or not vm.heap.trace_numpy or not vm.heap.shapes.feeds_numpy(tracker.source):
        return
    original = tracker.original
    if original.flags.writeable and original.dtype in _TORCH_DTYPES and min(original.strides, default=0) >= 0 \
            and not any(stride % original.itemsize for stride in original.strides):
        memory.back(root, _input(vm, tracker))


def tensor_of(vm: VM, array: numpy.ndarray, writes: bool = False) -> Any:
    """The tensor that is the contents of an array; with `writes`, an alias, and from now on it is.

    Numpy writes past version counters, as does whoever has the memory from torch.from_numpy: so does the alias.
    """
    fake = _contents(vm, array, writes)
    return vm.torch_attribute(fake, "data", torch._C.TensorBase.data) if writes else fake


def _contents(vm: VM, array: object, writes: bool) -> Any:
    memory = vm.heap.arrays
    view = memory.views.get(id(array))
    if view is not None:
        if view.version is not None and (writes or view.version != vm.recorder.version_of(view.whole)):
            raise Break("SB006", "a view that torch has no form for, of memory that is written to")
        return view.fake
    root = memory.root_of(array)
    if id(root) in memory.backed:
        if root is not array:
            raise Break("SB003", "a view of an array that has become the memory of a tensor")
        return memory.backed[id(array)][1]
    tracker = vm.heap.by_standin.get(id(array))
    if tracker is None:
        return _literal(vm, array, shared=writes)
    if vm.heap.faces.has_changed(tracker) or not tracker.original.flags.writeable:
        if writes:
            raise Break("SB006", "a tensor's values written to an array that was changed")
        return _literal(vm, array, shared=False)
    fake = _input(vm, tracker)
    if writes:
        fake = own_face(vm, fake)
        memory.back(array, fake)
    else:
        vm.heap.faces.tie(tracker)
    return fake


def index_key(vm: VM, key: object) -> Any:
    """A key of a tensor, its arrays as tensors."""
    if type(key) is numpy.ndarray:
        return copied_tensor(vm, key)
    if type(key) is tuple and any(type(part) is numpy.ndarray for part in key):
        return tuple(index_key(vm, part) for part in key)
    return key
