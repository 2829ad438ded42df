"""Marks that captured code honours: substitutes, constant results, and arguments of setattr and its like."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import stator


def original(x: Any) -> Any:
    raise RuntimeError("the original must not run")


@stator.substitute_in_graph(original)
def replacement(x: Any) -> Any:
    return x * 3


def test_a_substitute_runs_in_place_of_the_original() -> None:
    def program(x: Any) -> Any:
        return original(x) + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))


class Holder:
    pass


@pytest.mark.parametrize("wrong", [
    lambda o: setattr(o, "a"),  # type: ignore[call-arg]
    lambda o: delattr(o),  # type: ignore[call-arg]
    lambda o: operator.setitem({}, "k"),  # type: ignore[call-arg]
    lambda o: operator.delitem({}),  # type: ignore[call-arg]
])
def test_a_missing_argument_is_the_programs_own_type_error(wrong: Any) -> None:
    def program(x: Any) -> Any:
        try:
            wrong(Holder())
        except TypeError as error:
            return x + 1, str(error)
        return x

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    value, text = compiled(torch.ones(2))
    expected, expected_text = program(torch.ones(2))
    assert torch.equal(value, expected) and text == expected_text
