"""Branches on data that raise, where something is left on the way: `with` and `finally` blocks, causes and contexts."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.breaks.capture import compare

T = torch.Tensor


def with_a_cause(x: T, log: list[Any]) -> Any:
    if x.sum() < 0:
        raise ValueError("negative") from KeyError("why")
    return x + 1


def without_a_context(x: T, log: list[Any]) -> Any:
    if x.sum() < 0:
        raise ValueError("negative") from None
    return x + 1


def while_handling(x: T, log: list[Any]) -> Any:
    try:
        {}["k"]
    except KeyError as error:
        if x.sum() < 0:
            raise ValueError("negative") from error
        if x.max() > 100:
            raise IndexError("large")  # noqa: B904  its context is what is looked at
    return x + 1


def without_gradients(x: T, log: list[Any]) -> Any:
    with torch.no_grad():
        if x.sum() < 0:
            raise ValueError(f"negative {log}")
        y = x * 2
    return y + 1, torch.is_grad_enabled()


def by_a_decorator(x: T, log: list[Any]) -> Any:
    @torch.no_grad()
    def inner() -> T:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2
    return inner() + 1


def under_autocast(x: T, log: list[Any]) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x.view(1, -1) @ x.view(-1, 1)
        if y.sum() < 0 or x.sum() < 0:
            raise ValueError("negative")
    return y


def finally_noted(x: T, log: list[Any]) -> Any:
    log.append("begun")
    try:
        if x.sum() < 0:
            log.append("raised")
            raise ValueError("negative")
        log.append("went on")
        return x + 1
    finally:
        log.append("ended")


@contextlib.contextmanager
def timed(log: list[Any]) -> Iterator[None]:
    log.append("in")
    try:
        yield
    finally:
        log.append("out")


def in_a_context_that_only_cleans_up(x: T, log: list[Any]) -> Any:
    with timed(log):
        if x.sum() < 0:
            raise ValueError("negative")
        y = x * 2
    return y


def through_two_contexts(x: T, log: list[Any]) -> Any:
    def inner() -> T:
        with torch.no_grad():
            if x.sum() < 0:
                raise ValueError("negative")
            return x * 2
    with timed(log), timed(log):
        return inner()


def after_a_write(x: T, log: list[Any]) -> Any:
    x.mul_(2)
    with torch.no_grad():
        if x.sum() < 0:
            raise ValueError("negative")
    return x + 1


WHOLE: list[Callable[..., Any]] = [with_a_cause, without_a_context, while_handling, without_gradients, by_a_decorator,
                                   under_autocast, finally_noted, in_a_context_that_only_cleans_up,
                                   through_two_contexts, after_a_write]


def in_a_try(x: T, log: list[Any]) -> Any:
    try:
        if x.sum() < 0:
            raise ValueError("negative")
    except ValueError:
        return x - 1
    return x + 1


def suppressed(x: T, log: list[Any]) -> Any:
    with contextlib.suppress(ValueError):
        if x.sum() < 0:
            raise ValueError("negative")
        log.append("went on")
    return x + 1


@contextlib.contextmanager
def watched(log: list[Any]) -> Iterator[None]:
    log.append("in")
    try:
        yield
    except ValueError:
        log.append("caught")


@contextlib.contextmanager
def swallowing(log: list[Any]) -> Iterator[None]:
    with contextlib.suppress(ValueError):
        yield
    log.append("after")


def in_a_context_with_another_inside(x: T, log: list[Any]) -> Any:
    with swallowing(log):
        if x.sum() < 0:
            raise ValueError("negative")
    return x + 1


@contextlib.contextmanager
def returning(log: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        log.append("out")
        return  # noqa: B012  it ends the exception


def in_a_context_that_returns(x: T, log: list[Any]) -> Any:
    with returning(log):
        if x.sum() < 0:
            raise ValueError("negative")
    return x + 1


def in_the_programs_own_context(x: T, log: list[Any]) -> Any:
    with watched(log):
        if x.sum() < 0:
            raise ValueError("negative")
    return x + 1


BREAKING: list[Callable[..., Any]] = [in_a_try, suppressed, in_the_programs_own_context,
                                      in_a_context_with_another_inside, in_a_context_that_returns]


def told(error: BaseException | None) -> Any:
    """An exception, where it was raised, and those behind it."""
    if error is None:
        return None
    here = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == __file__ and frame.name != "outcome"]
    return type(error), error.args, error.__suppress_context__, here, told(error.__cause__), told(error.__context__)


def outcome(call: Callable[..., Any], number: float, size: int) -> Any:
    x, log = torch.full((size,), number), []
    try:
        value = call(x, log)
    except Exception as error:
        value = told(error)
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return str(value), str(x), log, modes


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("size", [3, 1 << 21])  # writes to large inputs are not taken back
@pytest.mark.parametrize("function", WHOLE + BREAKING, ids=lambda function: function.__name__)
def test_what_is_raised_and_what_is_left(function: Callable[..., Any], size: int, backend: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(function, backend=backend)
    with events.record() as log:
        for number in (1.0, 2.0, -1.0, 3.0, 200.0, -2.0):
            assert outcome(compiled, number, size) == outcome(function, number, size), number
    breaks = {event.code for event in log if isinstance(event, events.GraphBreak)}
    if function in BREAKING:
        assert breaks == {"SB002"}
    elif size == 3:
        assert not breaks
        assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1


# ---------------------------------------------------------------------- assertions


ASSERTS = """
def asserts(x):
    y = x + 1
    assert x.sum() > 0, "must be positive"
    return y * 2
"""


def test_an_assertion_is_part_of_the_graph() -> None:
    names: dict[str, Any] = {}
    exec(ASSERTS, names)  # pytest rewrites the assertions of its own modules
    seen = compare(names["asserts"], [(torch.ones(3),), (-torch.ones(3),), (torch.ones(3),)], fullgraph=True)
    assert not seen.breaks and len(seen.graph_modules) == 1
    targets = [node.target for node in seen.graph_modules[0].graph.nodes]
    assert torch.ops.aten._assert_async.msg in targets
