"""Loggers are asked as logging would answer, without its cache; what cannot be known breaks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from same_as_eager import call, same_as_eager

X = torch.arange(3.0)
LOGGER, LOOSE = logging.getLogger("stator.tests.loggers"), logging.Logger("loose")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    LOGGER.setLevel(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    LOGGER.disabled = False


def asked(x: Any, level: int) -> Any:
    return x + 1 if LOGGER.isEnabledFor(level) else x - 1


def change_nothing() -> None:
    pass


def switch_off() -> None:
    LOGGER.disabled = True


@pytest.mark.parametrize("change", [change_nothing, switch_off, lambda: logging.disable(logging.CRITICAL),
                                    lambda: LOGGER.setLevel(logging.DEBUG)])  # fmt: skip
def test_is_enabled_for(change: Any) -> None:
    change()
    same_as_eager(asked, call(X, logging.DEBUG), call(X, logging.ERROR), call(X, logging.CRITICAL), graphs=1)


def test_a_logger_that_no_manager_knows() -> None:
    report = same_as_eager(lambda x: x + 1 if LOOSE.isEnabledFor(10) else x - 1, call(X), fullgraph=False)
    assert not report.differences
    with pytest.raises(AssertionError, match="SB018"):
        same_as_eager(lambda x: x + 1 if LOOSE.isEnabledFor(10) else x - 1, call(X))


def test_a_handler_of_logging_itself_sees_no_order() -> None:
    """What was changed before is written after the message, which only code of the user's could notice."""
    def told(x: Any, xs: list[int]) -> Any:
        xs.append(1)
        LOGGER.error("told")
        return x + 1

    with open(os.devnull, "w") as stream:
        handler = logging.StreamHandler(stream)
        LOGGER.addHandler(handler)
        LOGGER.propagate = False
        try:
            same_as_eager(told, call(X, []), call(X, [2]), graphs=1)
        finally:
            LOGGER.removeHandler(handler)
            LOGGER.propagate = True
