"""Two names of one state, or of two, whatever came first: a compiled call does what the eager call does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from tests.laws.two_names import STATES, State


def write_read(state: State, a: Any, b: Any, x: Any) -> Any:
    state.write(a, 5)
    return state.other_read(b), x + 1


def read_write(state: State, a: Any, b: Any, x: Any) -> Any:
    before = state.read(a)
    state.other_write(b, 7)
    return before, state.read(a), x + 1


def write_write(state: State, a: Any, b: Any, x: Any) -> Any:
    state.write(a, 5)
    state.other_write(b, 7)
    return state.read(a), state.other_read(b), x + 1


USES = {"write, read": write_read, "read, write": read_write, "write, write": write_write}
ORDERS = {"apart, then one": "212", "one, then apart": "121"}


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist(), value.requires_grad, str(value.dtype))
    if isinstance(value, (tuple, list)):
        return type(value)(map(shown, value))
    return (type(value), value) if isinstance(value, (int, float, bool, str)) else repr(type(value)) if callable(value) else value


def outcomes(state: State, call: Any, order: str) -> list[Any]:
    found: list[Any] = []
    for count in order:
        a, b = state.one() if count == "1" else state.two()
        try:
            answer = shown(call(a, b, torch.ones(2)))
        except Exception as error:
            answer = (type(error), str(error))
        try:
            found.append((answer, shown([(state.show or state.read)(name) for name in (a, b)])))
        except Exception as error:
            found.append((answer, type(error)))
        finally:
            state.put_back()
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", STATES)
def test_same_as_eager(name: str, use: str, order: str) -> None:
    state, program = STATES[name], USES[use]

    def call(a: Any, b: Any, x: Any) -> Any:
        return program(state, a, b, x)

    expected = outcomes(state, call, ORDERS[order])
    assert outcomes(state, stator.compile(call, backend="eager"), ORDERS[order]) == expected


def test_a_view_of_a_class_that_leaves_shows_later_changes() -> None:
    cls = type("Changing", (), {"n": 1})
    compiled = stator.compile(lambda c, x: (c.__dict__, x + 1), backend="eager")
    views = [compiled(cls, torch.ones(2))[0] for _ in range(2)]
    cls.n = 2
    assert [view["n"] for view in views] == [2, 2]
