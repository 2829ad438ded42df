"""Defaults of keyword-only parameters: written to by the program, or replaced between calls."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import stator


def scaled(x: Any, *, k: Any = 1) -> Any:
    return x * k


def required(x: Any, *, k: Any) -> Any:
    return x * k


def counted_up(x: Any) -> Any:
    scaled.__kwdefaults__["k"] = scaled.__kwdefaults__["k"] + 1
    return scaled(x)


def before_and_after(x: Any) -> Any:
    first, table = scaled(x), scaled.__kwdefaults__
    table["k"] += 10
    return first, scaled(x)


def given_one(x: Any) -> Any:
    if required.__kwdefaults__:
        required.__kwdefaults__.pop("k", None)
    try:
        return required(x)
    except TypeError as error:
        return str(error)


def seen_from_outside(x: Any) -> Any:
    return x, [each.default is each.empty for each in inspect.signature(required).parameters.values()]


@pytest.mark.parametrize("program", [counted_up, before_and_after, given_one, seen_from_outside])
def test_as_in_eager(program: Any) -> None:
    def run(function: Any) -> list[str]:
        found = []
        for defaults in ({"k": 2}, {"k": 2}, {"k": 5.5}, {"j": 1}, None):
            scaled.__kwdefaults__ = {"k": 1} if not found else scaled.__kwdefaults__
            required.__kwdefaults__ = defaults
            found.append(str((function(torch.ones(2)), scaled.__kwdefaults__, required.__kwdefaults__)))
        scaled.__kwdefaults__, required.__kwdefaults__ = {"k": 1}, None
        return found

    assert run(stator.compile(program, backend="eager")) == run(program)


def listed(x: Any) -> Any:
    return scaled(x), list(scaled.__kwdefaults__)


@pytest.mark.filterwarnings("ignore:stator. recompile limit")
def test_a_table_that_changes_from_call_to_call_is_no_longer_a_fact() -> None:
    compiled = stator.compile(listed, backend="eager", options={"strict": True})
    try:
        for count in range(20):
            scaled.__kwdefaults__ = {"k": 2, f"unused_{count}": 1}
            assert str(compiled(torch.ones(2))) == str(listed(torch.ones(2)))
    finally:
        scaled.__kwdefaults__ = {"k": 1}
