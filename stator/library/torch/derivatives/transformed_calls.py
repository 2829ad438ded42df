"""The node of a transform of torch.func.   vmap(inner graph), its operands  ->  a node, and its results as fakes

In: what calls the transformed inner graph, and what it takes from outside.  Out: its results; it has run on the fakes.
Torch's rules for transforms do not know every symbolic number: where one refuses, the numbers become facts.  They do
not know all tensors of symbolic sizes either, and what they say then may be no error of the program's: it breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis.mutation import Observation
from stator.interp.frame import Raised
from stator.interp.vm import VM
from stator.shapes.symbolic_values import SYMBOLIC, specialise


def record(vm: VM, target: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the node's target on the fakes, for real, and record it."""
    try:
        results, written = _run(target, operands)
    except Exception as error:
        if any(type(value) is FakeTensor and value._has_symbolic_sizes_strides for value in operands):
            raise Break("SB016", f"a transform of torch.func, over sizes that are left open: {error}") from None
        if not any(type(value) in SYMBOLIC for value in operands):
            raise Raised(error) from None
        operands = tuple([specialise(value, "a number in a transform") if type(value) in SYMBOLIC else value
                          for value in operands])
        try:
            results, written = _run(target, operands)
        except Exception as again:
            raise Raised(again) from None
    vm.recorder.record("call_function", target, operands, {}, results, written)
    return results


def _run(target: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Any, list[FakeTensor]]:
    with torch._C.DisableTorchFunction(), Observation(target, operands, {}, opaque=False) as seen:
        results = target(*operands)
    return results, seen.written()
