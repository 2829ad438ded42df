"""Copies of elements onto themselves are compiled; those between places that overlap run as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator import events


def added(x: Any) -> Any:
    x[0] += 1
    return x * 2


def copied(x: Any) -> Any:
    x[0].copy_(x[0])
    return x * 2


def shifted(x: Any) -> Any:
    x[:, 1:] = x[:, :-1]
    return x * 2


def copied_shifted(x: Any) -> Any:
    x[:, 1:].copy_(x[:, :-1])
    return x * 2


@pytest.mark.parametrize(("program", "compiled"), [(added, True), (copied, True), (shifted, False), (copied_shifted, False)])
def test_same_elements(program: Any, compiled: bool) -> None:
    x, y = (torch.arange(9.0).reshape(3, 3) for _ in range(2))
    with events.record() as log:
        assert torch.equal(stator.compile(program, backend="aot_eager")(x), program(y)) and torch.equal(x, y)
    assert compiled != any(isinstance(event, events.EagerFallback) for event in log)
