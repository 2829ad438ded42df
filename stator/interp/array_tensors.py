"""Arrays as tensors.   torch.from_numpy(values)  ->  an input of the graph on the memory of `values`

An outside array that the program has not changed is an input, whatever its size.  One made inside the trace becomes
a literal in the graph; where the tensor shares its memory, the array is from then on a name for that tensor.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.interp.frame import Raised
from stator.source import CallOf, Pinned

LITERAL_LIMIT = 4096  # elements of an array of the trace that become a literal in the graph


def shared_tensor(vm: Any, array: Any) -> Any:
    """A tensor on the memory of an array: an input of the graph, or what the array has become."""
    memory = vm.heap.arrays
    if id(array) in memory.backed:
        return vm.torch_call(torch.Tensor.detach, (memory.backed[id(array)][1],), None)
    tracker = vm.heap.by_standin.get(id(array))
    if tracker is None:
        return _literal(vm, array, shared=True)
    if not tracker.original.flags.writeable:
        raise Break("SB015", "a tensor on the memory of a read-only array, of which torch warns")
    if memory.has_changed(tracker):
        raise Break("SB006", "a tensor on the memory of an array that was changed")
    fake = _input(vm, tracker)
    memory.tied[id(array)] = (array, fake, fake._version)
    return fake


def _input(vm: Any, tracker: Any) -> Any:
    """The graph's input on the memory of an outside array, as it was at the start."""
    inputs = vm.heap.arrays.inputs
    fake = inputs.get(id(tracker.standin))
    if fake is None:
        source = CallOf(Pinned(torch.from_numpy), (tracker.source,))
        fake = inputs[id(tracker.standin)] = vm.heap.adopt(real_tensor(tracker.original), source)
    elif fake._version:
        raise Break("SB006", "a second tensor on the memory of an array that tensor operations have changed")
    return fake


def real_tensor(array: Any) -> torch.Tensor:
    """A real tensor on an array's memory, whatever modes the trace is in."""
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise Raised(error) from None


def _literal(vm: Any, array: Any, shared: bool) -> Any:
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
        memory.backed[id(array)] = (array, made)
    return made


def copied_tensor(vm: Any, array: Any) -> Any:
    """A tensor with a copy of an array's contents."""
    memory = vm.heap.arrays
    tracker = vm.heap.by_standin.get(id(array))
    if id(array) in memory.backed:
        source = memory.backed[id(array)][1]
    elif tracker is None or not tracker.original.flags.writeable or memory.has_changed(tracker):
        return _literal(vm, array, shared=False)
    else:
        source = _input(vm, tracker)
    return vm.torch_call(torch.clone, (source,), {"memory_format": torch.contiguous_format})


def index_key(vm: Any, key: Any) -> Any:
    """A key of a tensor, its arrays as tensors."""
    if type(key) is numpy.ndarray:
        return copied_tensor(vm, key)
    if type(key) is tuple and any(type(part) is numpy.ndarray for part in key):
        return tuple(index_key(vm, part) for part in key)
    return key
