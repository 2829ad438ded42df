"""A call that raises because two arguments are two, then a call where they are one: nothing is expected to raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.comparison.eager_and_compiled import same_as_eager


class Thing:
    pass


def require(fact: bool) -> int:
    if not fact:
        raise ValueError("two")
    return 1


def foreach(a: Any, b: Any) -> Any:
    b.resize_(2)
    torch._foreach_add_([a, b], [b, a])
    return a.shape


def tensor() -> torch.Tensor:
    return torch.tensor([0.0, 1.0, 2.0, 3.0])


PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any]]] = {
    "list": (lambda a, b: (b.append(1), require(len(a) > 2)), lambda: [1, 2]),
    "dict": (lambda a, b: (b.update(n=1), require("n" in a)), dict),
    "set": (lambda a, b: (b.add(1), require(1 in a)), set),
    "object": (lambda a, b: (setattr(b, "n", 1), require(hasattr(a, "n"))), Thing),
    "values": (lambda a, b: (b.add_(1), require(a[0].item() == 1)), tensor),
    "sizes": (lambda a, b: (b.resize_(2), require(a.numel() == 2)), tensor),
    "foreach": (foreach, tensor),
    "data": (lambda a, b: (setattr(b, "data", torch.zeros(2)), require(len(a) == 2)), tensor),
    "requires_grad": (lambda a, b: (b.requires_grad_(), require(a.requires_grad)), tensor),
    "grad": (lambda a, b: (setattr(b, "grad", torch.ones(4)), require(a.grad is not None)), tensor),
    "attribute": (lambda a, b: (setattr(b, "mark", 1), require(hasattr(a, "mark"))), tensor),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_eager(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")  # an error that was expected and does not come is raised
    program, make = PROGRAMS[name]

    def two() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (make(), make()), {}

    def one() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (made := make(), made), {}

    same_as_eager(program, two, one, two, one, fullgraph=False, backend=backend)
