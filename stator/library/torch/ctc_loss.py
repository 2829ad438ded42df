"""Rule for the CTC loss.   F.ctc_loss(log_probs, targets, lengths, lengths)  ->  one node, at which compilers cut

The kernel reads the lengths, so fakes cannot run it: its result, and its gradient, have the layout of new tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import FunctionCtx

from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.torch.layers_and_optimizers import can_be_cut


class NewLoss(torch.autograd.Function):
    """A new tensor that wants gradients if `log_probs` does."""

    @staticmethod
    def forward(ctx: FunctionCtx, size: tuple[int, ...], log_probs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(log_probs)
        return log_probs.new_empty(size)

    @staticmethod
    def backward(ctx: Any, grad: object) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise NotImplementedError("twice through the CTC loss")
        log_probs, = ctx.saved_tensors
        return None, log_probs.new_empty(log_probs.shape)


@rule(torch.ctc_loss, F.ctc_loss)
def _ctc_loss(vm: VM, callee: Callable[..., object], /, log_probs: object, targets: object, input_lengths: object,
              target_lengths: object, *options: object, **named: object) -> object:
    recorder, given = vm.recorder, (log_probs, targets, input_lengths, target_lengths)
    reduction = named.get("reduction", options[1] if len(options) > 1 else "mean")
    may_record = recorder.backend.in_order or can_be_cut(vm)
    if not may_record or not isinstance(log_probs, FakeTensor) or not are_plain(*given) \
            or type(reduction) not in (int, str) or recorder.scope.enclosing is not None \
            or recorder.region.tangents or vm.modes.active or recorder.classes or recorder.wrappers.behind:
        return vm.torch_call(callee, (*given, *options), named, asked=True)
    recorder.propagation.require_exact()
    with torch._C.DisableTorchFunction(), recorder.symbols.dispatcher():
        size = tuple(log_probs.shape[1:-1]) if reduction in ("none", 0) else ()
        result = NewLoss.apply(size, log_probs)  # type: ignore[no-untyped-call]
    marks = recorder.region.marks
    recorder.region.marks = marks if recorder.backend.in_order else {BOUNDARY: True}
    recorder.record("call_function", callee, (*given, *options), named, result)
    recorder.region.marks = marks
    return result


def are_plain(log_probs: object, *others: object) -> bool:
    """Whether the kernel takes these tensors as they are."""
    with torch._C.DisableTorchFunction():
        return isinstance(log_probs, FakeTensor) and log_probs.dtype in (torch.float32, torch.float64) \
            and log_probs.dim() in (2, 3) and not torch.is_autocast_enabled(log_probs.device.type) and all(
                type(each) is FakeTensor and each.layout is torch.strided and not each.is_inference()
                and each.device.type in ("cpu", "cuda") for each in (log_probs, *others))
