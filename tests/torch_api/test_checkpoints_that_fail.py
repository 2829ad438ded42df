"""torch.utils.checkpoint of a function that raises: what follows is no part of the region any more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stator
from stator import events
from tests.torch_api.side_by_side import World, compare


def failing(x: torch.Tensor, n: int) -> torch.Tensor:
    y = x.sin()
    if n > 1:
        raise ValueError(f"{n} is too much")
    return y * n


def guarded(x: torch.Tensor, n: int) -> Any:
    try:
        y = checkpoint(failing, x, n, use_reentrant=False)
    except ValueError as error:
        return x.cos() * 2, str(error)
    return y.cos() * 2, None


def through_a_continuation(x: torch.Tensor, n: int) -> Any:
    """The call is asked for by C code, which has to see the exception."""
    rows = [row * 2 for row in map(lambda k: checkpoint(failing, x, k, use_reentrant=False), range(2))]
    found = getattr(Lazy(x, n), "value", None)
    return rows, x if found is None else found.cos()


class Lazy:
    def __init__(self, x: torch.Tensor, n: int) -> None:
        self.x, self.n = x, n

    @property
    def value(self) -> Any:
        try:
            return checkpoint(failing, self.x, self.n, use_reentrant=False)
        except ValueError:
            raise AttributeError("value") from None

    def __getattr__(self, name: str) -> Any:
        return checkpoint(missing, self.x, name, use_reentrant=False)


def missing(x: torch.Tensor, name: str) -> Any:
    raise AttributeError(name)


def given(step: int) -> Any:
    return torch.arange(3.0).requires_grad_(), (1, 2, 1)[step]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [guarded, through_a_continuation], ids=lambda each: each.__name__)
def test_equals_eager(program: Any, backend: str) -> None:
    seen = compare(lambda: World(program, given), calls=3, backend=backend)
    assert not seen.breaks, seen.causes


def test_what_follows_is_not_computed_again() -> None:
    with events.record() as log:
        stator.compile(guarded, backend="eager", fullgraph=True)(*given(1))
    (made,) = [event for event in log if isinstance(event, events.CaptureFinished)]
    marked = {node.name: "recompute" in node.meta for node in made.graph.graph.nodes if node.op.startswith("call")}
    assert not any(mark for name, mark in marked.items() if not name.startswith("sin")) and len(marked) >= 2
