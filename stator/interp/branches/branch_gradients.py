"""Gradients through a captured branch.   cond(t, f, g, (x, w))  ->  fake gradients of x and w, alike in both ways

The engine runs on the fakes of both ways.  Where they give gradients to different tensors, the backward pass breaks.
Strides may depend on the branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_DIFFER = "through a branch whose ways have other gradients"


def gradients_through(pairs: list[tuple[Any, Any]], operands: list[Any]) -> Callable[..., tuple[Any, ...]]:
    """A function from gradients of the merged results to those of `operands`."""
    def gradients(*grads: torch.Tensor | None) -> tuple[Any, ...]:
        taken, other = (_of_one_way([pair[side] for pair in pairs], operands, grads) for side in (0, 1))
        for one, two in zip(taken, other, strict=True):
            if (one is None) != (two is None) or one is not None and _kind(one) != _kind(two):
                raise NotImplementedError(_DIFFER)
        return taken

    return gradients


def _of_one_way(results: list[Any], operands: list[Any], grads: tuple[torch.Tensor | None, ...]
                ) -> tuple[Any, ...]:
    kept = [(result, grad) for result, grad in zip(results, grads, strict=True)
            if result.requires_grad and grad is not None]
    if not kept:
        return (None,) * len(operands)
    return torch.autograd.grad([result for result, _ in kept], operands, [grad for _, grad in kept],
                               retain_graph=True, allow_unused=True)


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout
