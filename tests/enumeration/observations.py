"""Programs that call a writer and then look: at a value, at a branch decided by `.item()`, at an alias, through another face.

In: a writer, and the element and the limit that its write moves across.  Out: a program of (observed, *args, **kwargs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch

Program = Callable[..., Any]
BEYOND = torch.tensor([1 << 20])  # an index out of bounds, which only the run finds


def element(observed: Any, at: int) -> Any:
    return observed if observed.ndim == 0 else observed.reshape(-1)[at]


def value(write: Program, at: int, limit: float) -> Program:
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        write(*args, **kwargs)
        return observed.copy() if isinstance(observed, numpy.ndarray) else observed.clone()

    return program


def item(write: Program, at: int, limit: float) -> Program:
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        write(*args, **kwargs)
        return 1 if abs(element(observed, at).item()) > limit else 2

    return program


def item_twice(write: Program, at: int, limit: float) -> Program:
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        before = 1 if abs(element(observed, at).item()) > limit else 2
        write(*args, **kwargs)
        return before, 3 if abs(element(observed, at).item()) > limit else 4

    return program


def alias(write: Program, at: int, limit: float) -> Program:
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        result = write(*args, **kwargs)
        return result, observed[...], observed

    return program


def face(write: Program, at: int, limit: float) -> Program:
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(observed, numpy.ndarray):
            other: Any = torch.from_numpy(observed)
        else:
            other = observed.detach().numpy()
        write(*args, **kwargs)
        first = abs(other.reshape(-1)[at].item())
        return 1 if first > limit else 2, other.copy() if isinstance(other, numpy.ndarray) else other.clone()

    return program


def layout(write: Program, at: int, limit: float) -> Program:
    """Read what no graph computes of the observed name."""
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        write(*args, **kwargs)
        return tuple(observed.shape), observed.ndim

    return program


def failure(write: Program, at: int, limit: float) -> Program:
    """Fail as the graph runs, after the write."""
    def program(observed: Any, *args: Any, **kwargs: Any) -> Any:
        write(*args, **kwargs)
        return torch.ones(3)[BEYOND]

    return program


OBSERVATIONS: dict[str, Callable[[Program, int, float], Program]] = {
    "value": value, "item": item, "item twice": item_twice, "alias": alias, "face": face, "layout": layout, "failure": failure,
}  # fmt: skip
