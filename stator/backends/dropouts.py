"""Compile dropouts of everything.   F.dropout(x, 1.0)  ->  x * 0 in the compiled graph, as the operator computes it

AOTAutograd takes dropout apart by a rule that draws random numbers for every p, and Inductor writes zeros whatever `x`
holds. The operator draws none for p = 1, and 0 * inf is nan: what the program draws next would be another number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

_DROPOUT = torch.ops.aten.dropout.default


@contextlib.contextmanager
def dropouts_of_everything() -> Iterator[None]:
    """Around the compilation of a graph: the rule is another one where p is 1."""
    rules = dict(_DROPOUT.py_kernels)
    _replace({key: _as_the_operator_does(known) for key, known in rules.items()})
    try:
        yield
    finally:
        _replace(rules)


def _as_the_operator_does(known: Callable[..., Any]) -> Callable[..., Any]:
    def dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        if train and p == 1:
            return input * torch.zeros((), dtype=input.dtype, device=input.device)
        return known(input, p, train)
    return dropout


def _replace(rules: dict[Any, Callable[..., Any]]) -> None:
    _DROPOUT.py_kernels.update(rules)
    _DROPOUT._dispatch_cache.clear()
