"""Arrays that no trace holds: of objects, of records, and in operators beside tensors. What is around them is captured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import stator
from stator import events
from tests.breaks.capture import compare


def of_objects(x: Any, n: int) -> Any:
    made = np.array([None, n])
    return x + n, made.tolist(), str(made.dtype)


def of_records(x: Any, n: int) -> Any:
    made = np.zeros(2, dtype="i4,f4")
    made["f0"] = n
    return x + n, made.tolist()


def of_parts(x: Any, n: int) -> Any:
    first, second = np.split(np.array([None, 1, n, 3]), 2)
    return x + n, first.tolist(), second.tolist()


@pytest.mark.parametrize("program", [of_objects, of_records, of_parts], ids=lambda each: each.__name__)
def test_arrays_of_objects(program: Any) -> None:
    seen = compare(program, [(torch.ones(2), 1), (torch.ones(2), 2), (torch.ones(2), 1)])
    assert set(seen.breaks) == {"SB005"} and seen.graphs


def beside(x: Any, array: Any) -> Any:
    return x * 2, (x + array).tolist(), str(x == array)


def beside_a_new_one(x: Any, n: float) -> Any:
    made = np.ones(2) * n
    return x * 2, (x + made).tolist(), str(x != made)


@pytest.mark.parametrize("options", [{}, {"trace_numpy": False}], ids=str)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_operators_between_a_tensor_and_an_array(options: Any) -> None:
    x = torch.ones(2)
    for program, given in ((beside, (np.arange(2.0), np.arange(2.0) + 1)), (beside_a_new_one, (1.0, 2.0))):
        compiled = stator.compile(program, backend="eager", options={"strict": True, **options})
        with events.record() as log:
            for each in given:
                assert str(compiled(x, each)) == str(program(x, each))
        assert {event.code for event in log if isinstance(event, events.GraphBreak)} == {"SB003"}
