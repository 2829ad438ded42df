"""Graph inputs as the residual hands them over.   x of a tensor subclass  ->  plain_tensor(x)"""

from __future__ import annotations

from typing import Any

import torch

from stator.emit.services import Rebuilder
from stator.shapes.symbolic_inputs import float_tensor
from stator.source import Drawn


def is_reshaped(each: Any) -> bool:
    """Whether the program has changed sizes or strides of an input; of a subclass the graph gets another tensor."""
    if not isinstance(each.tensor, torch.Tensor) or type(each.tensor) is torch.Tensor:
        return False
    with torch._C.DisableTorchFunction():
        return each.fake.dim() != each.tensor.dim() or any(
            type(now) is int and now != then for now, then in zip(
                (*each.fake.shape, *each.fake.stride()), (*each.tensor.shape, *each.tensor.stride()), strict=True))


def handed_over(build: Rebuilder, each: Any) -> str:
    """A graph input as an expression."""
    name = build.outside(each.source)
    if each.boxed:
        return f"{build.writer.constant(float_tensor, 'float_tensor')}({name})"
    if type(each.source) is Drawn and isinstance(each.fake, torch.Tensor):
        return f"{build.writer.constant(torch.from_numpy, 'from_numpy')}({name})"
    if id(each.fake) in build.recorder.classes and id(each.fake) not in build.recorder.wrappers.behind:
        return f"{build.writer.constant(plain_tensor, 'plain_tensor')}({name})"
    return name


def plain_tensor(tensor: torch.Tensor) -> Any:
    """A tensor of a subclass as the graph takes it: the trace has done what its `__torch_function__` does."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.requires_grad and not torch.is_grad_enabled():
            with torch.enable_grad():
                return tensor.as_subclass(torch.Tensor)
        return tensor.as_subclass(torch.Tensor)
