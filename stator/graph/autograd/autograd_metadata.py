"""Autograd's record for fakes.   a result worked out without gradients  ->  the same, with the history it would have

In: the results, those changed in place, those without a gradient; and the tensors they come from.
"""

from __future__ import annotations

from typing import Any

import torch


class Remembered(torch.autograd.Function):
    """Gives a known fake result the autograd history that F.apply would give it."""

    @staticmethod
    def forward(ctx: Any, plan: Any, *inputs: Any) -> Any:  # type: ignore[override]
        output, dirty, constant = plan
        ctx.mark_dirty(*dirty)
        ctx.mark_non_differentiable(*constant)
        return output

    @staticmethod
    def backward(ctx: object, *grads: object) -> Any:
        raise NotImplementedError("through an autograd.Function, or a checkpoint with a policy")
