"""Compare what two calls of a model returned.   eager output, compiled output  ->  nothing, or an AssertionError

Types must be the same all the way down (a ModelOutput is no dict), tensors must agree in shape, type, whether they
carry a gradient, and value.
"""

from __future__ import annotations

from typing import Any

import torch

# The same kernels run in the same order, so values agree to the last bits; sums of gradients may be regrouped.
CLOSE: dict[str, float] = dict(rtol=1e-4, atol=1e-5)


def same(eager: Any, compiled: Any, where: str = "result") -> None:
    """Every difference of structure or value is an AssertionError that names its place."""
    assert type(eager) is type(compiled), f"{where}: {type(compiled).__name__} instead of {type(eager).__name__}"
    if isinstance(eager, torch.Tensor):
        assert eager.requires_grad == compiled.requires_grad, f"{where}: requires_grad"
        torch.testing.assert_close(compiled, eager, equal_nan=True, msg=lambda text: f"{where}: {text}", **CLOSE)
    elif isinstance(eager, dict):
        assert list(eager) == list(compiled), f"{where}: keys"
        for key in eager:
            same(eager[key], compiled[key], f"{where}[{key!r}]")
    elif isinstance(eager, (list, tuple)):
        assert len(eager) == len(compiled), f"{where}: length"
        for i, (one, other) in enumerate(zip(eager, compiled, strict=True)):
            same(one, other, f"{where}[{i}]")
    elif isinstance(eager, (int, float, str, type(None))):
        assert eager == compiled, where
    elif not isinstance(eager, type) and hasattr(eager, "__dict__"):
        same(vars(eager), vars(compiled), where)


def tensors_of(value: Any, found: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
    """The tensors inside a result, in order."""
    found = [] if found is None else found
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            tensors_of(item, found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            tensors_of(item, found)
    elif hasattr(value, "layers"):  # a cache of keys and values
        tensors_of([vars(layer) for layer in value.layers], found)
    return found


def gradients(value: Any, model: torch.nn.Module) -> list[torch.Tensor | None]:
    """The gradients of the sum of all outputs, for each parameter of the model."""
    total = sum(t.float().sum() for t in tensors_of(value) if t.requires_grad)
    assert isinstance(total, torch.Tensor), "no output carries a gradient"
    wanted = [p for p in model.parameters() if p.requires_grad]
    return list(torch.autograd.grad(total, wanted, allow_unused=True))
