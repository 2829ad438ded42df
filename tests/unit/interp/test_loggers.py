"""Loggers are asked as logging would answer, without its cache; what cannot be known breaks."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

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
    """Earlier changes are written after the message, which only code of the user could notice."""
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


class Pieces:
    """A stream whose write() is Python code."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        self.parts.append(text)

    def flush(self) -> None:
        self.parts.append("flushed")


class Buffered(Pieces, io.StringIO):
    """The same, around C code."""


class Loud:
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __str__(self) -> str:
        self.stream.parts.append("asked")
        return "loud"


def printing(x: Any, loud: Any) -> Any:
    print("a", 1, end="!")
    y = x + 1
    print("b", sep="", flush=True)
    if loud is not None:
        print(loud, loud, sep="-", file=loud.stream)
    return y


@pytest.mark.parametrize("cls", [Pieces, Buffered])
@pytest.mark.parametrize("loud", [False, True])
def test_a_stream_in_python_is_written_to_piece_by_piece(cls: Any, loud: bool) -> None:
    compiled = stator.compile(printing, backend="eager")
    streams = []
    for function in (printing, compiled, compiled, compiled):
        streams.append(cls())
        with contextlib.redirect_stdout(streams[-1]):
            function(X, Loud(streams[-1]) if loud else None)
    assert streams[0].parts[:7] == ["a", " ", "1", "!", "b", "\n", "flushed"]
    assert all(stream.parts == streams[0].parts for stream in streams), [stream.parts for stream in streams]
