"""An error of the program is raised once, and logged by nobody."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import stator


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


def test_a_capture_logs_no_error_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    compiled: Any = stator.compile(product, backend="eager")
    with caplog.at_level(logging.ERROR, logger="torch._subclasses.fake_tensor"):
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            compiled(torch.ones(2, 3), torch.ones(2, 3))
    assert not caplog.records


def test_others_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="torch._subclasses.fake_tensor"), FakeTensorMode():
        with pytest.raises(RuntimeError):
            product(torch.ones(2, 3), torch.ones(2, 3))
    assert caplog.records
