"""Tensors that torch.from_numpy makes: a storage of their own on the memory of an array, which torch sees no overlap with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import stator
from tests.comparison import same_as_eager


@torch.library.custom_op("storages::double", mutates_args={"x"})
def double(x: torch.Tensor) -> None:
    x.mul_(2)


def written_from_its_array(x: Any) -> Any:
    x[1:3] = torch.from_numpy(x.numpy())[:2]
    return x


def written_behind_an_operator(x: Any) -> Any:
    double(x)
    return written_from_its_array(x)


def written_before_an_operator(x: Any) -> Any:
    written_from_its_array(x)
    double(x)
    return x


def written_through_as_tensor(x: Any) -> Any:
    double(x)
    x[1:3] = torch.as_tensor(x.numpy())[:2]
    return x


def written_after_a_break(x: Any) -> Any:
    face = torch.from_numpy(x.numpy())
    stator.graph_break()
    x[1:3] = face[:2]
    return x


def told_apart(x: Any) -> Any:
    face, other = torch.from_numpy(x.numpy()), torch.from_numpy(x.numpy())
    return x.is_set_to(face), face is other, face._version, x.untyped_storage()._cdata == face.untyped_storage()._cdata


def array_written_from_itself(x: Any) -> Any:
    double(x)
    values = x.numpy()
    values[1:3] = values[:2]
    return x


def array_copied_from_itself(x: Any) -> Any:
    double(x)
    values = x.numpy()
    np.copyto(values[:3], values[1:])
    return x


def array_computed_into_itself(x: Any) -> Any:
    double(x)
    values = x.numpy()
    np.positive(values[1:], out=values[:3])
    return x


PROGRAMS = [written_from_its_array, written_behind_an_operator, written_before_an_operator, written_through_as_tensor,
            written_after_a_break, told_apart, array_written_from_itself, array_copied_from_itself,
            array_computed_into_itself]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_tensor_and_its_array(program: Any) -> None:
    same_as_eager(program, *(lambda: ((torch.arange(1.0, 5.0),), {}) for _ in range(2)), fullgraph=False, strict=True)
    compiled = stator.compile(program, backend="eager", options={"strict": True})  # runs the nodes in order
    found = [(repr(function(x)), x.tolist()) for function in (program, compiled, compiled) for x in [torch.arange(1.0, 5.0)]]
    assert found[0] == found[1] == found[2]


def two_tensors_on_one_array(values: Any) -> Any:
    one, other = torch.from_numpy(values), torch.from_numpy(values)
    double(one)
    other[1:3] = one[:2]
    return one is other, one.is_set_to(other), one, other, one._version, other._version


def test_two_tensors_on_one_array() -> None:
    same_as_eager(two_tensors_on_one_array, *(lambda: ((np.arange(4.0, dtype=np.float32),), {}) for _ in range(2)),
                  fullgraph=False, strict=True)


@pytest.mark.parametrize("compare", [np.shares_memory, np.may_share_memory])
def test_arrays_that_share_memory_in_some_calls(compare: Any) -> None:
    def program(one: Any, other: Any) -> Any:
        return compare(one, other), torch.from_numpy(one) + 1

    def arguments(shared: bool) -> Any:
        one = np.arange(4.0)
        return (one, one[1:] if shared else np.arange(3.0)), {}

    for order in ((False, True, False), (True, False, True)):
        same_as_eager(program, *(lambda shared=shared: arguments(shared) for shared in order), fullgraph=False, strict=True)
