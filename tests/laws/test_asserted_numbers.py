"""Assertions on numbers of the graph: a float that becomes an int, and a number that only the assertion uses.

The programs raise by hand: pytest rewrites an `assert`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import expect_true

import stator
from stator.interp import graph_errors

FLOATS, INTS = torch.arange(4.0), torch.arange(4)


def truncated(n: Any) -> Any:
    if n == int(FLOATS[2]):
        raise AssertionError("truncated")
    return 1


def integer(n: Any) -> Any:
    if n == int(INTS[2]):
        raise AssertionError("integer")
    return 1


def floating(n: Any) -> Any:
    if n == FLOATS[2].item():
        raise AssertionError()
    return 1


def less(n: Any) -> Any:
    if n >= int(FLOATS[2]):
        raise AssertionError()
    return n


def computed(n: Any) -> Any:
    if not FLOATS[1].item() + n > 5:
        raise AssertionError("computed")
    return FLOATS * n


def rounded(n: Any) -> Any:
    if round(FLOATS[2].item()) == n:
        raise ValueError("rounded")
    return FLOATS + 1


def product(n: Any) -> Any:
    if INTS[1].item() * n > 5:
        raise ValueError("product")
    return n


def written_before(n: Any) -> Any:
    FLOATS.add_(1)
    if n == int(FLOATS[2]):
        raise AssertionError()
    return FLOATS.sum()


def checked(n: Any) -> Any:
    torch._check(n != int(FLOATS[2]))
    return 1


def checked_integer(n: Any) -> Any:
    torch._check(n != int(INTS[2]))
    return 1


def checked_with_text(n: Any) -> Any:
    torch._check(n != int(FLOATS[2]), lambda: "no")
    return 1


PROGRAMS = [truncated, integer, floating, less, computed, rounded, product, written_before, checked, checked_integer,
            checked_with_text]


def outcome(function: Any, number: int) -> Any:
    global FLOATS
    FLOATS = torch.arange(4.0)
    try:
        result = repr(function(number))
    except Exception as error:  # an outcome to compare
        result = f"{type(error).__name__}: {error}".partition("\n")[0][:40]
    return result, FLOATS.tolist()


def differences(function: Any, backend: str) -> list[int]:
    stator.reset()
    compiled = stator.compile(function, backend=backend)
    return [number for number in (5, 5, 6, 1, 2, 3, 6, 2, 3) if outcome(function, number) != outcome(compiled, number)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_is_eager(function: Any, backend: str) -> None:
    assert not differences(function, backend)


@pytest.mark.parametrize("function", [truncated, integer])
def test_assertions_of_their_own_are_noticed(function: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(graph_errors, "assert_in_graph", lambda vm, condition: expect_true(condition))
    assert differences(function, "eager")
