"""The table of programs.   @program def f(x): ...   ->  PROGRAMS["f"], called with the tensors of its rank

In: a function of one tensor, or a builder (`@built`) of a callable and its calls.  Out: one `Program`, whose `build()`
makes everything afresh for each side of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

Built = tuple[Callable[..., Any], Sequence[Any]]
PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True)
class Program:
    """One program of the suite.  `pair`: it is written for two ranks."""

    name: str
    build: Callable[[], Built]
    whole: bool = True
    quick: bool = False  # part of the subset of the test suite
    module: str = ""
    file: str = ""
    pair: bool = False
    tolerance: float = 1e-4


def values(*shape: int, offset: float = 0.0) -> torch.Tensor:
    """Numbers that differ from rank to rank."""
    count = torch.Size(shape or (4, 4)).numel()
    return torch.arange(count, dtype=torch.float32).reshape(shape or (4, 4)) / 4 + 10.0 * dist.get_rank() + offset


def _added(fn: Callable[..., Any], build: Callable[[], Built], whole: bool, quick: bool,
           pair: bool = False, tolerance: float = 1e-4) -> None:
    name = fn.__name__.strip("_")
    assert name not in PROGRAMS, name
    PROGRAMS[name] = Program(name, build, whole, quick, fn.__module__, fn.__code__.co_filename, pair, tolerance)


def program(fn: Any = None, *, whole: bool = True, quick: bool = False, grad: bool = False,
            pair: bool = False) -> Any:
    """Add a function of one 4x4 tensor; two calls with different values."""
    if fn is None:
        return lambda fn: program(fn, whole=whole, quick=quick, grad=grad, pair=pair)
    _added(fn, lambda: (fn, [(values().requires_grad_(grad),), (values(offset=2.0).requires_grad_(grad),)]), whole, quick,
           pair)
    return fn


def built(fn: Any = None, *, whole: bool = True, quick: bool = False, tolerance: float = 1e-4) -> Any:
    """Add a builder of a callable and its calls."""
    if fn is None:
        return lambda fn: built(fn, whole=whole, quick=quick, tolerance=tolerance)
    _added(fn, fn, whole, quick, tolerance=tolerance)
    return fn
