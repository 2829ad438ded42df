"""Probes: writes that no name tells of, and inputs that come to share the memory they go to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from probing import RAISES, Scene, probe

import stator

NOTES: list[str] = []


@torch.library.custom_op("stator_writers::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


@bump.register_fake
def _(x: torch.Tensor) -> None:
    return None


@torch.library.custom_op("stator_writers::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    NOTES.append("noted")
    return x + 1


@noted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("stator_writers::picky", mutates_args=())
def picky(x: torch.Tensor) -> torch.Tensor:
    if float(x.sum()) > 10:
        raise ValueError("too large")
    return x.clone()


@picky.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def raised(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def lowered(x: torch.Tensor) -> torch.Tensor:
    return x.sub_(3) * 2


stator.allow_in_graph(raised)
stator.allow_in_graph(lowered)


def coming_together(fn: Callable[..., Any]) -> Scene:
    """`fn(n, m)` with two tensors of one number, later with one tensor twice."""
    world: dict[str, Any] = {"apart": True}

    def args() -> tuple[Any, ...]:
        n = torch.tensor(3)
        return n, torch.tensor(3) if world["apart"] else n.view(())

    return Scene(fn, args, lambda: world.update(apart=False))


@probe("SB003")
def number_read_after_a_write_elsewhere():
    def fn(n, m):
        m.add_(1)
        return 1 if n.item() > 3 else 2

    return coming_together(fn)


@probe("SB002")
def truth_read_after_an_operator_wrote_elsewhere():
    def fn(n, m):
        torch.ops.aten.sub_.Tensor(m, 3)
        return 1 if n else 2

    return coming_together(fn)


@probe("SB002")
def truth_read_after_a_function_of_the_graph_wrote_elsewhere():
    def fn(n, m):
        lowered(m)
        return 1 if n else 2

    return coming_together(fn)


@probe("SB006")
def size_read_after_a_custom_operator_wrote_elsewhere():
    def fn(n, m):
        bump(m)
        return torch.ones(n.item())

    return coming_together(fn)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pos", torch.tensor(3))

    def forward(self, limit: torch.Tensor) -> int:
        self.pos.add_(1)
        return 1 if limit.item() > 3 else 2


@probe()
def buffer_that_comes_to_be_an_argument():
    world: dict[str, Any] = {"apart": True}

    def args() -> tuple[Any, ...]:
        model = Counter()
        return model, torch.tensor(3) if world["apart"] else model.pos

    return Scene(lambda model, limit: model(limit), args, lambda: world.update(apart=False))


def failing(fn: Callable[..., Any]) -> Scene:
    """`fn(x, index)`; the index is out of bounds after the change."""
    world: dict[str, Any] = {"index": torch.tensor([1])}
    NOTES.clear()
    x = torch.zeros(3)
    return Scene(fn, lambda: (x, world["index"]), lambda: world.update(index=torch.tensor([7])), lambda: (x, list(NOTES)),
                 undo=NOTES.clear)


@probe(RAISES)
def error_after_a_custom_operator_wrote():
    def fn(x, index):
        bump(x)
        return x[index]

    return failing(fn)


@probe(RAISES)
def error_after_an_operator_by_name_wrote():
    def fn(x, index):
        torch.ops.aten.add_.Tensor(x, 1)
        return x[index]

    return failing(fn)


@probe(RAISES)
def error_after_a_function_of_the_graph_wrote():
    def fn(x, index):
        raised(x)
        return x[index]

    return failing(fn)


@probe(RAISES)
def error_after_a_custom_operator_with_an_effect():
    def fn(x, index):
        return noted(x)[index]

    return failing(fn)


@probe("SB006")
def effects_around_a_custom_operator_with_an_effect():
    def fn(x, index):
        NOTES.append("before")
        y = noted(x)
        NOTES.append("after")
        return y[index]

    return failing(fn)
