"""`stator.print`: print from inside the graph, while it runs.

    stator.print("hidden", h)                   an operator of the graph writes to sys.stdout, in order with its like
    h = stator.print("hidden", h, gradient=True)   and its gradient, in the backward pass; use the tensor returned
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

_library = torch.library.Library("stator", "DEF")
_library.define("print(str[] texts, Tensor[] values) -> ()")
_library.define("tap(Tensor value, str text) -> Tensor")
_library.define("tap_gradient(Tensor gradient, str text) -> Tensor")


def _write(texts: list[str], values: list[torch.Tensor]) -> None:
    shown = [texts[0]]
    for value, text in zip(values, texts[1:], strict=True):
        shown += [str(value.detach()), text]
    sys.stdout.write("".join(shown))


def _tap_gradient(gradient: torch.Tensor, text: str) -> torch.Tensor:
    sys.stdout.write(f"{text}{gradient}\n")
    return gradient.clone()


_library.impl("print", _write, "CompositeExplicitAutograd")
_library.impl("tap", lambda value, text: value.clone(), "CompositeExplicitAutograd")
_library.impl("tap_gradient", _tap_gradient, "CompositeExplicitAutograd")
torch.library.register_fake("stator::print", lambda texts, values: None, lib=_library)
torch.library.register_fake("stator::tap", lambda value, text: torch.empty_like(value), lib=_library)
torch.library.register_fake("stator::tap_gradient", lambda gradient, text: torch.empty_like(gradient), lib=_library)
_register_effectful_op(torch.ops.stator.print.default, _EffectType.ORDERED)


torch.library.register_autograd(
    "stator::tap", lambda ctx, gradient: (torch.ops.stator.tap_gradient(gradient, ctx.text), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "text", inputs[1]), lib=_library)


def print(*values: object, sep: str = " ", end: str = "\n", gradient: bool = False) -> Any:
    """Print when the graph runs. Values that are no tensors are shown as they are while it is captured.

    With `gradient`, the tensors are returned (one, or a tuple), and their gradients are printed in the backward pass
    of what is computed from the returned ones.
    """
    texts, tensors, name = [""], [], ""
    for number, value in enumerate(values):
        if number:
            texts[-1] += sep
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            texts.append("")
        else:
            texts[-1] += str(value)
            name += str(value) + sep
    texts[-1] += end
    torch.ops.stator.print.default(texts, tensors)
    if not gradient:
        return None
    tapped = [torch.ops.stator.tap.default(tensor, f"gradient of {name}" if name else "gradient ")
              for tensor in tensors]
    return tapped[0] if len(tapped) == 1 else tuple(tapped)
