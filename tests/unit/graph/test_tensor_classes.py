"""Classes of tensors that C code asks things which the interpreter would not hear of: their objects are not traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import stator
from stator import events

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the tracer is raised: eager's result would be right."""
    monkeypatch.setenv("STATOR_STRICT", "1")


class Index(torch.Tensor):
    def __index__(self) -> int:
        return 1


class Array(torch.Tensor):
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return numpy.arange(3)


class Rounded(torch.Tensor):
    def __round__(self, digits: int = 0) -> Any:  # type: ignore[override]
        return 42

    def __divmod__(self, other: Any) -> Any:
        return 1, 2


class Asked(torch.Tensor):
    def __getattribute__(self, name: str) -> Any:
        return 9 if name == "extra" else super().__getattribute__(name)


class Hashed(torch.Tensor):
    def __hash__(self) -> int:
        return 3

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return other is self


def outcome(program: Program, *args: Any) -> str:
    try:
        return str(program(*args))
    except Exception as error:
        return repr(error)


PROGRAMS: list[tuple[type[torch.Tensor], Program]] = [
    (Index, lambda x, odd: [4, 5, 6][odd]), (Array, lambda x, odd: (x + 1, numpy.asarray(odd))),
    (Rounded, lambda x, odd: (x + 1, round(odd), divmod(odd, 2))), (Asked, lambda x, odd: x + odd.extra),
    (Hashed, lambda x, odd: (x + 1, {odd: 1}[odd], hash(odd))),
]


@pytest.mark.parametrize(("cls", "program"), PROGRAMS)
def test_what_c_code_asks_the_class(cls: type[torch.Tensor], program: Program) -> None:
    compiled, odd = stator.compile(program, backend="eager"), torch.tensor([2.0]).as_subclass(cls)
    for _ in range(2):
        assert outcome(compiled, torch.ones(3), odd) == outcome(program, torch.ones(3), odd)


@pytest.mark.parametrize("program", [
    lambda x, odd: x[odd], lambda x, odd: x.sin()[odd], lambda x, odd: x[:, odd], lambda x, odd: x.narrow(0, odd, 1),
    lambda x, odd: x.is_same_size(odd), lambda x, odd: torch.add(x, other=odd), lambda x, odd: torch.stack([x, odd]),
])  # fmt: skip
def test_such_a_tensor_beside_others(program: Program) -> None:
    """torch takes it for a tensor, where an object that is none is asked for its `__index__`."""
    compiled = stator.compile(program, backend="eager")
    for odd in (torch.tensor([2.0]), torch.tensor([2]), torch.tensor([[0, 1], [1, 0]])):
        odd = odd.as_subclass(Index)
        with events.record() as log:
            assert outcome(compiled, torch.ones(3, 3), odd) == outcome(program, torch.ones(3, 3), odd)
        assert {event.code for event in log if isinstance(event, events.GraphBreak)} <= {"SB017"}


@pytest.mark.parametrize("program", [
    lambda wrapper: (wrapper.unsqueeze_(0), tuple(wrapper.shape)), lambda wrapper: (wrapper.t_(), wrapper.stride()),
    lambda wrapper: (wrapper.resize_(3, 2), tuple(wrapper.shape)),
    lambda wrapper: (wrapper.add_(torch.ones(2, 3, requires_grad=True)), wrapper.requires_grad),
])  # fmt: skip
def test_operations_in_place_that_change_what_a_wrapper_looks_like(program: Program) -> None:
    def made() -> Any:
        return TwoTensor(torch.ones(2, 3), torch.zeros(2, 3))

    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        ours, theirs = made(), made()
        assert compiled(ours)[1] == program(theirs)[1]
        assert (ours.shape, ours.stride(), ours.requires_grad) == (theirs.shape, theirs.stride(), theirs.requires_grad)
    with pytest.raises(stator.Unsupported, match="SB017"):
        stator.compile(program, backend="eager", fullgraph=True)(made())
