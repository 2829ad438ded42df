"""Rules for functions whose answer is data.   torch.equal(a, b)  ->  (a == b).all().item()

In: two tensors of the same dtype and device.  Out: False where sizes differ, under guards (equal); else an unbacked
number.  masked_select gets a tensor of the size of its mask: torch bounds its result by the size of the tensor alone.
Other pairs go to torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.interp.numbers.symbolic_numbers import as_bool, item_of, truth
from stator.interp.rule_registry import rule
from stator.interp.vm import VM


@rule(torch.equal, torch._C.TensorBase.equal)  # type: ignore[attr-defined]
def _equal(vm: VM, callee: Callable[..., object], /, input: torch.Tensor, other: torch.Tensor) -> object:
    pair = input, other
    if _are_plain(vm, pair):
        with torch._C.DisableTorchFunction():
            kinds, sizes = zip(*[((each.dtype, each.device), each.shape) for each in pair], strict=True)
        if kinds[0] == kinds[1]:
            if len(sizes[0]) != len(sizes[1]) or not all(truth(vm, a == b) for a, b in zip(*sizes, strict=True)):
                return False
            alike = vm.torch_call(torch.eq, pair, None)
            return as_bool(vm, item_of(vm, vm.torch_call(torch.all, (alike,), None)))
    return vm.torch_call(callee, pair, None, asked=True)


@rule(torch.allclose, torch._C.TensorBase.allclose)  # type: ignore[attr-defined]
def _allclose(vm: VM, callee: Callable[..., object], /, input: torch.Tensor, other: torch.Tensor, rtol: float = 1e-05,
              atol: float = 1e-08, equal_nan: bool = False) -> object:
    settings = rtol, atol, equal_nan
    if not _are_plain(vm, (input, other)) or input.dtype != other.dtype or input.device != other.device:
        return vm.torch_call(callee, (input, other, *settings), None, asked=True)
    close = vm.torch_call(torch.isclose, (input, other, *settings), None)
    return as_bool(vm, item_of(vm, vm.torch_call(torch.all, (close,), None)))


@rule(torch.masked_select, torch._C.TensorBase.masked_select)  # type: ignore[attr-defined]
def _masked_select(vm: VM, callee: Callable[..., object], /, input: torch.Tensor, mask: torch.Tensor, *,
                   out: object = None) -> object:
    if _are_plain(vm, (input, mask)):
        with torch._C.DisableTorchFunction():
            sizes = tuple(input.shape), tuple(mask.shape)
        if sizes[0] != sizes[1] and all(type(size) is int for size in (*sizes[0], *sizes[1])):
            with contextlib.suppress(RuntimeError):  # torch raises its own error for sizes that do not fit
                input = vm.torch_call(torch.Tensor.expand, (input, torch.broadcast_shapes(*sizes)), None)
    return vm.torch_call(callee, (input, mask), {} if out is None else {"out": out}, asked=True)


def _are_plain(vm: VM, tensors: tuple[torch.Tensor, ...]) -> bool:
    recorder = vm.recorder
    return recorder.scope.data_dependent and not vm.modes.active and all(
        type(each) is FakeTensor and each.layout is torch.strided and id(each) not in recorder.classes
        for each in tensors)
