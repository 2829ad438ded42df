"""Masks that Python functions make from numpy's random numbers, in train steps beside eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import Make, Register, World, compare
from tests.training.step_programs import look_at, values

CAPTURED, OTHERS = Register(), Register()
SCALE = 3


def spans(shape: tuple[int, int], share: float, length: int, least: int = 0) -> Any:
    """Spans of masked places, as models of speech draw them."""
    rows, places = shape
    if length > places:
        raise ValueError("longer than the sequence")
    bound = int(share * places / length + np.random.rand(1).item())

    def count() -> int:
        return max(bound, least)
    mask = np.zeros((rows, places), dtype=bool)
    if count() == 0:
        return mask
    starts = [np.random.choice(np.arange(places - length + 1), count(), replace=False) for _ in range(rows)]
    index = np.broadcast_to(np.array(starts)[:, :, None], (rows, count(), length)).reshape(rows, -1)
    index = index + np.tile(np.arange(length), count())[None]
    if index.max() > places - 1:
        index[index > places - 1] = places - 1
    np.put_along_axis(mask, index, True, -1)
    return mask


def ragged() -> Any:
    """As many numbers as chance has it."""
    if np.random.rand() < 0.5:
        return np.random.rand(2)
    return np.random.rand(3)


def scaled(n: int) -> Any:
    if np.random.rand() < 0.5:
        return np.ones(n) * SCALE
    return np.zeros(n)


def step_with(make_mask: Any) -> World:
    model = nn.Linear(12, 12)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        mask = make_mask()
        loss = F.mse_loss(model(x.masked_fill(mask, 0.5)), x)
        loss.backward()
        optimiser.step()
        return loss.detach(), mask.sum(), np.random.rand(2)
    return World(step, lambda i: (values(3, 12, seed=i),), look_at(model, optimiser))


@CAPTURED
def one_mask() -> World:
    return step_with(lambda: torch.tensor(spans((3, 12), 0.4, 3, 1), dtype=torch.bool))


@CAPTURED
def draws_around_two_masks() -> World:
    def both() -> Any:
        np.random.rand(3)
        first = torch.from_numpy(spans((3, 12), 0.3, 4))
        np.random.standard_normal(2)
        return first | torch.from_numpy(spans((3, 12), 0.4, length=2, least=1))
    return step_with(both)


@CAPTURED
def no_mask_at_all() -> World:
    return step_with(lambda: torch.from_numpy(spans((3, 12), 0.02, 4)))


@CAPTURED
def a_global_that_changes() -> World:
    def arguments(i: int) -> Any:
        globals()["SCALE"] = 3 if i < 2 else 5
        return (values(3, 12, seed=i),)

    def step(x: Any) -> Any:
        return x + torch.from_numpy(scaled(12))
    return World(step, arguments)


@OTHERS
def arrays_of_two_sizes() -> World:
    return World(lambda x: (x.sum() + torch.from_numpy(ragged()), np.random.rand()), lambda i: (values(3, seed=i),))


@OTHERS
def an_error_of_the_function() -> World:
    def step(x: Any) -> Any:
        try:
            return x + torch.from_numpy(spans((3, 12), 0.4, x.shape[0]))
        except ValueError as error:
            return str(error), np.random.rand()
    return World(step, lambda i: (values(13 if i % 2 else 3, 12 if i % 2 == 0 else 1, seed=i),))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", CAPTURED, ids=lambda make: make.__name__)
def test_captured(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 6, backend, 0.0 if backend == "eager" else 1e-5)
    assert report.causes == []
    assert sum(report.captures) <= 3


@pytest.mark.parametrize("make", OTHERS, ids=lambda make: make.__name__)
def test_equal(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compare(make, 8)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_through_a_mask(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows are replaced is known at run time only, in the backward pass too."""
    def make() -> World:
        model, filler = nn.Linear(12, 12), nn.Parameter(values(12))

        def step(x: Any) -> Any:
            hidden = model(x)
            hidden[x[:, 0] > 0] = filler
            loss = hidden.pow(2).mean()
            loss.backward()
            return loss.detach()
        return World(step, lambda i: (values(5, 12, seed=i),), lambda: (look_at(model)(), filler, filler.grad))
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert compare(make, 4, backend, 0.0 if backend == "eager" else 1e-5).causes == []
