"""Detach results whose history a backward pass in the graph has consumed.   loss.backward(); return loss

In: the results of a graph, and fakes whose histories the engine has freed as it does in eager.  Out: the same results,
detached where a second backward pass would raise, with the text of that error.  No compiler then differentiates them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.autograd_boundaries import CONSUMED, leaves_of
from stator.interp.vm import VM


def detach_consumed(vm: VM, outputs: list[Any]) -> None:
    if not vm.autograd.consumes or vm.recorder.backend.in_order:
        return
    for place, output in enumerate(outputs):
        text = error_of_second_pass(vm, output) if type(output) is FakeTensor else ""
        if text:
            detached = vm.recorder.call(torch.Tensor.detach, (output,), {})
            vm.recorder.node_of(detached).meta[CONSUMED] = text
            outputs[place] = detached


def error_of_second_pass(vm: VM, output: FakeTensor) -> str:
    with torch._C.DisableTorchFunction(), vm.recorder.symbols.dispatcher(), \
            torch.autograd.set_multithreading_enabled(False):
        if not output.requires_grad or output.is_leaf:
            return ""
        try:
            torch.autograd.grad(output, leaves_of([output]), torch.ones_like(output), True, allow_unused=True)
        except RuntimeError as error:
            return str(error) if "backward through the graph a second time" in str(error) else ""
        except Exception:
            return ""
    return ""
