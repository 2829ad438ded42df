"""Operators and functions that write to their arguments, imported by every generated program.

In: nothing.  Out: custom operators with `mutates_args`, with a Python effect, or failing after a write; functions put into
the graph whole; two functions over one cell or over two; a method of torch.Tensor patched and restored. Operators are
registered once for each process, so they cannot stand in the prelude.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import stator

LOG: list[str] = []  # Python effects of operators


@torch.library.custom_op("fuzz::bump", mutates_args={"x"})
def bump(x: torch.Tensor, by: float = 1.0) -> None:
    x.add_(by)


@torch.library.custom_op("fuzz::move", mutates_args={"target"})
def move(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    target.copy_(source * 2)
    return source + 1


@move.register_fake
def _(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(source)


@torch.library.custom_op("fuzz::swap", mutates_args={"x", "y"})
def swap(x: torch.Tensor, y: torch.Tensor) -> None:
    held = x.clone()
    x.copy_(y)
    y.copy_(held)


@torch.library.custom_op("fuzz::bump_all", mutates_args={"xs"})
def bump_all(xs: list[torch.Tensor]) -> None:
    for x in xs:
        x.add_(1)


@torch.library.custom_op("fuzz::noisy", mutates_args={"x"})
def noisy(x: torch.Tensor) -> None:
    """Write, and leave a Python effect that must happen once."""
    LOG.append(f"noisy {len(LOG)}")
    x.mul_(-1)


@torch.library.custom_op("fuzz::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    """Fail on data, as the graph runs."""
    LOG.append("checked")
    if float(x.sum()) > 6:
        raise ValueError("too large")
    return x.clone()


@checked.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("fuzz::write_then_fail", mutates_args={"x"})
def write_then_fail(x: torch.Tensor) -> None:
    x.add_(1)
    if float(x.sum()) > 3:
        raise RuntimeError("failed after the write")


@stator.allow_in_graph
def whole(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x + y


@stator.allow_in_graph
def whole_reader(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def cells(start: int, shared: bool) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """A reader and a writer, over one cell or over two."""
    held = other = start

    def read() -> Any:
        return held

    def write(value: Any) -> None:
        nonlocal held
        held = value

    def write_other(value: Any) -> None:
        nonlocal other
        other = value

    return read, write if shared else write_other


PATCHES: dict[str, Any] = {
    "relu": lambda self: torch._C.TensorBase.relu(self) * 10,
    "neg_": lambda self: torch._C.TensorBase.neg_(self).add_(1),
    "__float__": lambda self: torch._C.TensorBase.__float__(self) + 0.5,
}


def patch_methods() -> None:
    for name, patched in PATCHES.items():
        setattr(torch.Tensor, name, patched)


def restore_methods() -> None:
    """Both methods are inherited: a patch is an entry of torch.Tensor, and goes with it."""
    for name in PATCHES:
        if name in vars(torch.Tensor):
            delattr(torch.Tensor, name)
