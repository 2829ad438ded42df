"""torch.tensor of lists of tensors with one item, and of numbers beside them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import stator

X = torch.tensor([1.0, 5.0, 3.0])
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "floats": lambda x: torch.tensor([x.min(), x.max()]),
    "nested": lambda x: torch.tensor([[x.min(), x.max()], (x[0], x[1])]),
    "beside numbers": lambda x: torch.tensor([x.min(), 1.5, 2, True]),
    "of dimensions": lambda x: torch.tensor([x[:1, None], x[1:2, None]]),
    "of several dimensions": lambda x: torch.tensor([x.sum(), x[:1, None]]),
    "integers": lambda x: torch.tensor([x[:1, None].argmin(), x.argmax().reshape(1, 1)]),
    "of a dtype": lambda x: torch.tensor([x.min(), x.max()], dtype=torch.float64),
    "as_tensor": lambda x: torch.as_tensor([x.min(), x.max()]),
    "with a gradient": lambda x: torch.tensor([x.min(), x.max()], requires_grad=True),
    "made inside": lambda x: x + torch.tensor([torch.tensor(2), torch.tensor([[3]])]).sum(),
    "sizes": lambda x: torch.zeros(torch.tensor([torch.tensor(2), torch.tensor(3)]).tolist()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str) -> None:
    compiled = stator.compile(PROGRAMS[name], backend="eager", fullgraph=True)
    for x in (X, -X, X + 0.5):
        expected, found = PROGRAMS[name](x), compiled(x)
        assert torch.equal(found, expected) and found.dtype is expected.dtype
        assert found.requires_grad == expected.requires_grad and found.stride() == expected.stride()


@pytest.mark.parametrize("program", [
    lambda x: torch.tensor([x, x]), lambda x: torch.tensor([x.max(), x]), lambda x: torch.tensor([[x.max()], []]),
    lambda x: torch.tensor([x.argmax(), x.max()]), lambda x: torch.tensor([x.max(), 1j]),
    lambda x: torch.tensor([x.requires_grad_().max(), x.min()])])
def test_others_are_as_in_eager(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = stator.compile(program, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scale in (1, -1):
            assert ending(compiled, X * scale) == ending(program, X * scale)


def ending(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[object, ...]:
    try:
        value = function(x)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return value.dtype, value.tolist()
