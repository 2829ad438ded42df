"""Arrays that no trace holds: of objects, of records, and in operators beside tensors. What is around them is captured."""

from __future__ import annotations

import warnings
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
    assert set(seen.breaks) == {"SB005"} and seen.graph_modules


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


MASKS: dict[str, Any] = {
    "array": lambda a: a[a > 2],
    "constant": lambda a: a[np.array([True, False, True, True])],
    "list": lambda a: a[[True, False, True, True]],
    "scalar": lambda a: a[a[0] > 0],
    "True": lambda a: a[True],
    "numpy.True_": lambda a: a[np.True_],
    "beside": lambda a: a.reshape(2, 2)[:, [True, False]],
}
DIFFERING: dict[str, Any] = {
    "floor": lambda a: a // a[::-1],
    "remainder": lambda a: a % a[::-1],
    "fmod": lambda a: np.fmod(a, a[::-1]),
    "by nothing": lambda a: a // 0,
    "by a negative": lambda a: a % -2,
    "complex": lambda a: np.maximum(a + 1j, a + 2j),
    "signs of complex": lambda a: np.sign(a + 1j),
}


def codes_of(program: Any, dtype: Any) -> set[str]:
    """Of the breaks of a program over the memory of a tensor, which equals eager call by call."""
    def run(x: torch.Tensor) -> Any:
        array = x.numpy()
        return program(array), array + 1, x * 2

    compiled = stator.compile(run, backend="eager", options={"strict": True})
    with events.record() as log, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for step in range(3):
            given = torch.arange(4).add(step).to(dtype)
            assert str(compiled(given.clone())) == str(run(given.clone()))
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
    return {event.code for event in log if isinstance(event, events.GraphBreak)}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    assert codes_of(MASKS[name], torch.float32) == {"SB004"}


@pytest.mark.parametrize("name", DIFFERING)
def test_what_torch_does_otherwise(name: str) -> None:
    assert codes_of(DIFFERING[name], torch.int64) >= {"SB003"}


def test_a_function_of_which_torch_has_no_form() -> None:
    def program(x: torch.Tensor) -> Any:
        array = x.numpy()
        np.put(array, [0, 1], [7.0, 8.0])
        return array, np.spacing(array), x * 2

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    with events.record() as log:
        for step in range(2):
            assert str(compiled(torch.arange(4.0) + step)) == str(program(torch.arange(4.0) + step))
    causes = {event.cause for event in log if isinstance(event, events.GraphBreak)}
    assert "put of an array that is the memory of a tensor" in causes


def filled(i: Any, two: Any) -> None:
    i.fill(3)
    i -= two


def assigned(i: Any, two: Any) -> None:
    i[:] = 3
    i -= two


def given_as_out(i: Any, two: Any) -> None:
    np.multiply(i, 0, out=i)
    np.add(i, 3, i)
    np.subtract(i, two, i)


@pytest.mark.parametrize("write", [filled, assigned, given_as_out], ids=lambda each: each.__name__)
def test_what_is_written_is_not_taken_for_what_is_known(write: Any) -> None:
    """A stand-in for the memory of a tensor holds nothing in particular: no written index is out of range."""
    def program(x: torch.Tensor, two: torch.Tensor, table: torch.Tensor) -> Any:
        array = x.numpy()
        write(array, two.numpy())
        return table.numpy()[array], x

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for step in range(2):
        given = torch.arange(4) + step, torch.full((4,), 2), torch.tensor([10.0, 20.0])
        assert str(compiled(*(each.clone() for each in given))) == str(program(*(each.clone() for each in given)))
