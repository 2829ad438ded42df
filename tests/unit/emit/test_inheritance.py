"""Facts that a resume point inherits from before the break: it is compiled once, without learning by misses."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import torch

import stator
from stator import events


def letters(x: torch.Tensor, words: list[str]) -> torch.Tensor:
    for word in words:
        x = x + (1 if word == "a" else 2)
    return x


def test_items_of_a_list_of_any_length_are_looked_at() -> None:
    """That the list changes says nothing about its items: taking one is a break, comparing it is none."""
    log = called(letters, [(torch.ones(2), ["a", "b"] * n) for n in (1, 2, 3, 4, 5, 6, 7, 9, 11)])
    causes = [event.cause for calls in log for event in calls if isinstance(event, events.GraphBreak)]
    assert causes and not any(" of a str " in cause for cause in causes), causes


TREE = ast.parse("1")


def in_python(y: torch.Tensor) -> torch.Tensor:
    z = y + 1
    exec(compile(TREE, "text", "exec"))  # this frame runs to its end as it is
    return z * 2


def sizes_after(x: torch.Tensor, flag: bool) -> torch.Tensor:
    total = x.sum()
    if flag:
        total = in_python(total)
    return total + x.shape[0]


def test_the_callers_of_a_frame_that_runs_as_it_is_know_which_sizes_change() -> None:
    log = called(sizes_after, [(torch.ones(n), n > 4) for n in range(2, 9)])
    captures = [sum(isinstance(event, events.CaptureFinished) for event in calls) for calls in log]
    assert captures == [1, 1, 0, 2, 0, 0, 0], captures


def called(fn: Any, calls: list[tuple[Any, ...]]) -> list[list[Any]]:
    """The events of each call; every call equals eager."""
    compiled, logs = stator.compile(fn, backend="eager", options={"strict": True}), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in calls:
            with events.record() as log:
                torch.testing.assert_close(compiled(*args), fn(*args))
            logs.append(log)
    return logs
