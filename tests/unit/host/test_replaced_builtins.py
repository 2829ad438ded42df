"""A program that replaces a builtin: captured where nothing breaks meanwhile, else run as it is, and put back."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

import stator
from stator import events
from stator.host.replaced_builtins import replaced


def no_lists(value: Any) -> int:
    if type(value) is list:
        raise TypeError("no lists")
    return value.__len__()


def with_another_len(x: int, breaks: bool) -> tuple[int, int]:
    old = builtins.len
    try:
        builtins.len = no_lists
        n = len("abc")
        if breaks:
            stator.graph_break()
        n += len("de")
    finally:
        builtins.len = old
    return n, x + 1


@pytest.mark.parametrize("breaks", [False, True])
def test_a_program_that_replaces_len(breaks: bool) -> None:
    assert with_another_len(1, breaks) == (5, 2)
    compiled = stator.compile(with_another_len, backend="eager")
    for x in (1, 2):
        assert compiled(x, breaks) == (5, x + 1)
        assert replaced() is None


def test_a_call_under_a_replaced_builtin_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(lambda items: len(items), backend="eager")
    with events.record() as log:
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "len", lambda items: -1)
            assert replaced() == "len"
            assert compiled([1]) == -1
        assert compiled([1]) == 1
    assert [event.why for event in log if isinstance(event, events.EagerFallback)] == [
        "builtins.len was replaced, and Stator needs Python's own"]


def test_print_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(builtins, "print", said.append)
    assert replaced() is None
    compiled = stator.compile(lambda x: print(x) or x + 1, backend="eager", fullgraph=True)
    assert compiled(1) == 2
    assert said == [1]
