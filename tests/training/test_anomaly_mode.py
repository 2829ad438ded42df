"""Anomaly mode in captured steps: each function of the backward pass is checked for nan, as in eager.

A call that fails the check is made again, eagerly, so the error and the warning name the lines of the program.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import look_at, values

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])
TOLERANCE = {"eager": 0.0, "aot_eager": 1e-5}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    y = values(4, 4, seed=number + 100)
    y[0, 0] = -1.0 if number % 3 == 1 else 1.0
    return values(4, 4, seed=number), y


def rooted(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The square root of 0 has an infinite derivative, which `where` multiplies by 0: nan where y[0, 0] is negative."""
    return F.mse_loss(torch.where(y > 0, (out.abs() * (y[0, 0] > 0)).sqrt(), out), y)


@BACKENDS
@pytest.mark.parametrize("around", ["step", "backward", "outside", "no check"])
def test_steps_are_whole(backend: str, around: str) -> None:
    def make() -> World:
        model = network()
        optimiser = torch.optim.Adam(model.parameters(), 0.01)

        def step(x: Any, y: Any) -> Any:
            optimiser.zero_grad()
            if around == "backward":
                loss = F.mse_loss(model(x), y)
                with torch.autograd.set_detect_anomaly(True):
                    loss.backward()
            elif around == "outside":
                loss = F.mse_loss(model(x), y)
                loss.backward()
            else:
                with torch.autograd.detect_anomaly(check_nan=around == "step"):
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
            optimiser.step()
            return loss

        def arguments(number: int) -> Any:
            torch.autograd.set_detect_anomaly(around == "outside" and number % 2 == 0)
            return data(number)
        return World(step, arguments, look_at(model, optimiser))

    try:
        assert not compare(make, 6, backend, TOLERANCE[backend]).causes
    finally:
        torch.autograd.set_detect_anomaly(False)


@BACKENDS
@pytest.mark.parametrize("check_nan", [True, False])
def test_nan_in_some_calls(backend: str, check_nan: bool) -> None:
    def make() -> World:
        model = network()
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        errors: list[str] = []

        def step(x: Any, y: Any) -> Any:
            optimiser.zero_grad()
            with torch.autograd.set_detect_anomaly(True, check_nan):
                loss = rooted(model(x), y)
                loss.backward()
            optimiser.step()
            return loss.detach()

        def checked(x: Any, y: Any) -> Any:
            try:
                return step(x, y)
            except RuntimeError as error:
                errors.append(str(error))
                return None
        return World(checked, data, lambda: (look_at(model, optimiser)(), list(errors)))

    report = compare(make, 8, backend, TOLERANCE[backend])
    assert not report.causes


@BACKENDS
def test_the_warning_names_the_lines_of_the_program(backend: str) -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = rooted(x * 2, y)
        with torch.autograd.set_detect_anomaly(True):
            loss.backward()
        return loss

    def step_under_it(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autograd.set_detect_anomaly(True):
            loss = rooted(x * 2, y)
            loss.backward()
        return loss

    for function in (step, step_under_it):
        found = []
        for run in (function, stator.compile(function, backend=backend)):
            outcomes = []
            for sign in (1.0, -1.0, 1.0):
                x, y = values(4, 4, seed=1).requires_grad_(), values(4, 4, seed=2)
                y[0, 0] = sign
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        run(x, y)
                        error = ""
                    except RuntimeError as raised:
                        error = str(raised)
                texts = [str(each.message).partition("Traceback of forward")[0] for each in caught]
                named = ["rooted" in str(each.message) for each in caught]
                outcomes.append((error, texts, named, None if x.grad is None else x.grad.tolist()))
            found.append(outcomes)
        assert found[0] == found[1]
        assert ["nan" in outcome[0] for outcome in found[0]] == [False, True, False]
