"""Rule for torch.equal.   torch.equal(a, b)  ->  (a == b).all().item(), where sizes, dtypes and devices are the same

In: two tensors.  Out: False where sizes differ, under guards; else an unbacked number.  Other pairs go to torch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.interp.numbers.symbolic_numbers import as_bool, item_of, truth
from stator.interp.rule_registry import rule
from stator.interp.vm import VM


@rule(torch.equal, torch._C.TensorBase.equal)  # type: ignore[attr-defined]
def _equal(vm: VM, callee: Callable[..., object], /, input: torch.Tensor, other: torch.Tensor) -> object:
    recorder, pair = vm.recorder, (input, other)
    plain = recorder.scope.data_dependent and not vm.modes.active and all(
        type(each) is FakeTensor and each.layout is torch.strided and id(each) not in recorder.classes for each in pair)
    if plain:
        with torch._C.DisableTorchFunction():
            kinds, sizes = zip(*[((each.dtype, each.device), each.shape) for each in pair], strict=True)
        if kinds[0] == kinds[1]:
            if len(sizes[0]) != len(sizes[1]) or not all(truth(vm, a == b) for a, b in zip(*sizes, strict=True)):
                return False
            alike = vm.torch_call(torch.eq, pair, None)
            return as_bool(vm, item_of(vm, vm.torch_call(torch.all, (alike,), None)))
    return vm.torch_call(callee, pair, None, asked=True)
