"""Assignments to `.data` as nodes.   w.data = w.data / sigma; w(x)  ->  set_data(w, div); linear(x, w)

In: an assignment that no note can stand for (see tensor_bookkeeping): the tensor is used again and wants a gradient, is
made in the call, or gets another dtype.  Out: a node between compiled pieces.  Autograd keeps the tensor itself, so a
backward pass sees the new memory, as in eager.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import boundary
from stator.graph.analysis.mutation import CODE
from stator.graph.metadata.input_layouts import PLAIN_CLASSES
from stator.graph.metadata.propagation import ExactNeeded
from stator.interp.services import VM

ASSIGNED = "assignment to Tensor.data"  # a cause of breaks


@boundary
def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    tensor.data = value


def _is_plain(fake: FakeTensor) -> bool:
    with torch._C.DisableTorchFunction():
        return fake.layout is torch.strided and not (fake.is_inference() or fake.is_conj() or fake.is_neg())


def _lie_alike(fake: FakeTensor, value: FakeTensor) -> bool:
    with torch._C.DisableTorchFunction():
        if fake._has_symbolic_sizes_strides or value._has_symbolic_sizes_strides:
            return False  # a comparison would be a guard
        return fake.dtype == value.dtype and fake.shape == value.shape and fake.stride() == value.stride()


def assign_in_graph(vm: VM, fake: FakeTensor, value: Any, is_kept: bool) -> None:
    """Record the assignment; `is_kept`: autograd may have saved the tensor before."""
    recorder, tracker = vm.recorder, vm.heap.by_standin.get(id(fake))
    if type(value) is not FakeTensor or recorder.scope.enclosing is not None or recorder.region.marks \
            or recorder.classes or recorder.wrappers.behind or recorder.region.tangents \
            or tracker is not None and type(tracker.original) not in PLAIN_CLASSES:
        raise Break("SB006", ASSIGNED)
    in_order = recorder.backend.in_order
    if not (_is_plain(fake) and _is_plain(value) and fake.device == value.device) \
            or not in_order and (recorder.symbols.has_fresh or not _lie_alike(fake, value)):
        raise Break("SB006", "assignment to Tensor.data of a tensor that lies otherwise in memory")
    if recorder.propagation.enabled:
        raise ExactNeeded  # from now on two fakes share a storage
    if tracker is not None:
        vm.heap.note_write(fake)
    before = recorder.layouts.before((fake,), {})
    recorder.record("call_function", set_data, (fake, value), {}, None, [fake], CODE)
    with torch._C.DisableTorchFunction():
        fake.data = value
    recorder.propagation.changed((fake,))
    recorder.log.changes += 1
    recorder.log.reshaped += before != recorder.layouts.after((fake,), {})
    recorder.log.uncounted = True
    if is_kept and not in_order:
        recorder.backend.as_it_is = True
