"""Branches on single floats that a module holds: decided while tracing, under a guard on the value."""

from __future__ import annotations

from typing import Any

import torch

import stator
from tests.comparison import GraphCounter


class Curved(torch.nn.Module):
    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.register_buffer("k", torch.full((size,), -1.0))
        self.threshold = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        if torch.all(self.k.sign().lt(0)):
            x = x * 2
        return x.sin() if self.threshold > 0.3 else x.cos()


def counted(model: Any, **settings: Any) -> tuple[Any, GraphCounter]:
    counter = GraphCounter("eager")
    return stator.compile(model, backend=counter.backend, **settings), counter


def test_a_setting_decides() -> None:
    model = Curved()
    compiled, counter = counted(model, fullgraph=True)
    x = torch.ones(3)
    for k, threshold in ((-1.0, 0.5), (-1.0, 0.5), (2.0, 0.5), (2.0, 0.1), (-1.0, 0.5)):
        with torch.no_grad():
            model.k.fill_(k)
            model.threshold.fill_(threshold)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_setting_that_always_changes_breaks_in_the_end() -> None:
    model = Curved()
    compiled, _ = counted(model)
    x = torch.ones(3)
    for step in range(8):
        with torch.no_grad():
            model.k.fill_(float(step - 4))
            model.threshold.fill_(step * 0.1)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_vector_is_no_setting() -> None:
    model = Curved(size=64)
    compiled, _ = counted(model)
    x = torch.ones(3)
    for k in (-1.0, 1.0):
        model.k.fill_(k)
        torch.testing.assert_close(compiled(x), model(x))
    stator.reset()
    try:
        stator.compile(model, backend="eager", fullgraph=True, options={"capture_control_flow": False})(x)
    except stator.Unsupported as error:
        assert "SB002" in str(error)
    else:
        raise AssertionError("captured")


def test_a_setting_written_in_the_call() -> None:
    class Stepped(Curved):
        def forward(self, x: Any) -> Any:
            self.k.add_(1)
            return x + 1 if self.k.sum() > 0 else x - 1

    sides = []
    for compiles in (False, True):
        model = Stepped()
        function = stator.compile(model, backend="eager") if compiles else model
        sides.append([(function(torch.ones(2)), model.k.clone()) for _ in range(5)])
    torch.testing.assert_close(sides[1], sides[0])
