"""Powers and products of floats that only the graph knows, with numbers that change: as Python computes them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import stator
from stator import events
from stator.shapes.environment import TraceEnvironment


def fading(x: torch.Tensor, beta: float, step: torch.Tensor) -> torch.Tensor:
    return x * (1 - beta ** step.item())


def nothing(x: torch.Tensor, decay: float, step: torch.Tensor) -> Any:
    return x / (1 + (step.item() - 1) * 0), decay


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_base_and_an_exponent_that_change(backend: str) -> None:
    compiled, x = stator.compile(fading, backend=backend), torch.ones(2)
    with events.record() as log:
        for number in range(1, 12):
            beta, step = 0.9 + number / 1000, torch.tensor(float(number))
            torch.testing.assert_close(compiled(x, beta, step), fading(x, beta, step))
    assert sum(isinstance(event, events.CaptureFinished) for event in log) <= 3
    assert not any(isinstance(event, events.GraphBreak) for event in log)


def test_a_base_out_of_range_is_compiled_for_itself() -> None:
    compiled, x = stator.compile(fading, backend="eager"), torch.ones(2)
    for beta in (0.5, 0.6, 0.7, 2.0, 1.0, 3.0, -2.0):
        for exponent in (3.0, -2.0, 0.0):
            assert torch.equal(compiled(x, beta, torch.tensor(exponent)), fading(x, beta, torch.tensor(exponent)))


def test_an_overflow_is_raised() -> None:
    compiled, x = stator.compile(fading, backend="eager"), torch.ones(2)
    for beta in (0.5, 0.6, 0.7):
        compiled(x, beta, torch.tensor(2.0))
    with pytest.raises(OverflowError):
        fading(x, 0.55, torch.tensor(-1e9))
    with pytest.raises(OverflowError):
        compiled(x, 0.55, torch.tensor(-1e9))


def test_zero_times_a_number() -> None:
    compiled, x = stator.compile(nothing, backend="eager", fullgraph=True), torch.ones(2)
    for step in (3.0, -4.0, math.inf, 0.0, -math.inf):
        ours, theirs = (function(x, 0.1, torch.tensor(step))[0] for function in (compiled, nothing))
        assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.nan_to_num(), theirs.nan_to_num())


def test_products_beyond_64_bits_are_constants() -> None:
    """Compilers and guards compute with 64 bits."""
    def squared(x: torch.Tensor, n: int) -> Any:
        return x + 1, n * n

    compiled = stator.compile(squared, backend="eager", dynamic=True)
    for n in (1 << 40, 1 << 41):
        with events.record() as log:
            assert compiled(torch.ones(2), n)[1] == n * n
        assert log, "captured for this number alone"


GROWING = {"product": lambda n: n * n, "third power": lambda n: n ** 3, "three factors": lambda n: n * n * n,
           "shifted": lambda n: n << 20, "constant factor": lambda n: n * 1_000_003}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", GROWING)
def test_numbers_that_grow_out_of_64_bits_are_compiled_again(name: str, backend: str) -> None:
    """An entry made for small numbers takes those whose products its compiler can hold."""
    def remainder(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * (GROWING[name](n) % 1_000_033)

    compiled, x = stator.compile(remainder, backend=backend, dynamic=True, fullgraph=True), torch.ones(2)
    with events.record() as log:
        for n in (3, 4, 5, -6, 7000):
            assert torch.equal(compiled(x, n), remainder(x, n)), n
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1
    for n in (1 << 32, (1 << 33) + 1, 1 << 40, -(1 << 34) - 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)):
        assert torch.equal(compiled(x, n), remainder(x, n)), n


def test_a_shift_by_a_number_that_grows() -> None:
    def shifted(x: torch.Tensor, n: int) -> Any:
        return x + 1, (1 << n) % 1009, 3 ** n % 1009

    compiled = stator.compile(shifted, backend="eager", dynamic=True)
    for n in (3, 4, 30, 50, 62, 63, 64, 70, 200, 0):
        assert compiled(torch.ones(2), n)[1:] == shifted(torch.ones(2), n)[1:], n


def test_a_shift_by_a_number_that_only_the_graph_knows() -> None:
    def shifted(x: torch.Tensor, y: torch.Tensor) -> Any:
        n = int(y.sum().item())
        return x + 1, 1 << n, 2 ** n

    compiled = stator.compile(shifted, backend="eager", options={"strict": True})
    for y in (1.0, 2.0, 40.0):
        assert compiled(torch.ones(2), torch.tensor([y]))[1:] == shifted(torch.ones(2), torch.tensor([y]))[1:]
    with pytest.raises(ValueError, match="negative shift count"):
        compiled(torch.ones(2), torch.tensor([-1.0]))


def test_a_range_that_torch_finds_too_wide_is_no_replacement(monkeypatch) -> None:
    said = ["tgt_bound=VR[-9, 9] not a subset of src_bound=VR[-8, 8]", "something else"]

    def refuse(self, a, tgt, msg):
        raise AssertionError(said.pop(0))

    monkeypatch.setattr(ShapeEnv, "_set_replacement", refuse)
    environment = TraceEnvironment()
    environment._set_replacement(None, None, "")
    with pytest.raises(AssertionError, match="something else"):
        environment._set_replacement(None, None, "")
    assert not said


def rooted(x: torch.Tensor, step: int) -> Any:
    try:
        return x * math.sqrt(1 - 0.999 ** step) / math.sqrt(step - 3)
    except ValueError:
        return x - 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_roots_of_numbers_that_change(backend: str) -> None:
    """Their signs are guarded, not the numbers."""
    compiled, x = stator.compile(rooted, backend=backend, fullgraph=True), torch.ones(2)
    with events.record() as log:
        for number in (4, 5, 6, 7, 8, 9, 1, 2, 10):
            assert torch.equal(compiled(x, number), rooted(x, number))
    assert sum(isinstance(event, events.CaptureFinished) for event in log) <= 5
