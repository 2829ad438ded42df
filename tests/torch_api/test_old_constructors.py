"""Variable(x), torch.FloatTensor(x), torch.tensor(array, device=): values, memory, gradients and warnings as in eager."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import Variable

import stator
from tests.comparison import Checks, Programs, call, same_as_eager

of_tensors, of_arrays, refused = Programs(), Programs(), Programs()


def values(seed: int, rows: int = 3, grad: bool = False) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


@of_tensors
def variable(x: Any) -> Any:
    y = Variable(x)
    return y * 2, y is x, y.requires_grad, y, type(y)


@of_tensors
def variable_that_is_written_to(x: Any) -> Any:
    y = Variable(data=x.detach() * 2)
    z = Variable(y, False)
    z.add_(1)
    return y, z


@of_tensors
def variable_as_a_leaf(x: Any) -> Any:
    y = Variable(torch.ones(2), requires_grad=True)
    (grad,) = torch.autograd.grad((y * y).sum(), y)
    return grad, x * 3


@of_tensors
def volatile(x: Any) -> Any:
    return Variable(x * 2, volatile=True) + x


@of_tensors
def class_of_a_variable(x: Any) -> Any:
    return isinstance(Variable(x), Variable), isinstance(x, Variable), type(Variable(x)) is Variable, x * 2


@of_tensors
def old_constructors_of_tensors(x: Any) -> Any:
    y = torch.Tensor(x) * 2
    z = torch.FloatTensor(x * 3)
    return y, z, torch.LongTensor(x.long()) + 1, torch.Tensor(x.long()).dtype, torch.Tensor(x) is x


@of_tensors
def memory_of_old_constructors(x: Any) -> Any:
    y = x.detach() + 1
    z = torch.Tensor(y)
    z.mul_(2)
    return y, z


@of_arrays
def old_constructors_of_arrays(x: Any, array: Any) -> Any:
    return torch.Tensor(array) + x, torch.FloatTensor(array) * 2, torch.DoubleTensor(array) * 2


@of_arrays
def shared_with_an_array(x: Any, array: Any) -> Any:
    y = torch.DoubleTensor(array)
    y.mul_(2)
    return x + y


@of_arrays
def with_a_device(x: Any, array: Any) -> Any:
    y = torch.tensor(array, device=x.device)
    y += 1
    return y + x, torch.tensor(array, dtype=x.dtype, device="cpu"), torch.as_tensor(array, dtype=torch.float32) * 2


@of_arrays
def shared_by_as_tensor(x: Any, array: Any) -> Any:
    y = torch.as_tensor(array, device="cpu")
    y *= 2
    return x + y


@of_arrays
def list_of_arrays(x: Any, array: Any) -> Any:
    y = torch.tensor([array, array * 2])
    z = torch.tensor((np.ones(4), np.zeros(4)), dtype=torch.float32, device="cpu")
    return y, z + x[:2], torch.tensor([[array], [array + 1]]).shape


@of_arrays
def as_a_leaf(x: Any, array: Any) -> Any:
    y = torch.tensor(array, dtype=torch.float32, requires_grad=True)
    (grad,) = torch.autograd.grad((y * x).sum(), y)
    return grad


@refused
def variable_of_integers(x: Any) -> Any:
    return Variable(x.long(), requires_grad=True), x


@refused
def volatile_leaf(x: Any) -> Any:
    return Variable(x, volatile=True, requires_grad=True)


@refused
def variable_of_a_number(x: Any) -> Any:
    return Variable(3), x


@refused
def of_another_type(x: Any) -> Any:
    return torch.FloatTensor(x.double())


@refused
def arrays_of_two_shapes(x: Any) -> Any:
    return torch.tensor([np.ones(2), np.ones(3)]), x


@pytest.mark.parametrize("backend, grad", [("eager", False), ("aot_eager", True)])
@pytest.mark.parametrize("name", of_tensors)
def test_of_tensors(name: str, backend: str, grad: bool) -> None:
    same_as_eager(of_tensors[name], call(values(1, grad=grad)), call(values(2, grad=grad)), call(values(3, 5, grad)), backend=backend)


@pytest.mark.parametrize("name", of_arrays)
def test_of_arrays(name: str) -> None:
    torch.tensor([np.zeros(1)])  # torch warns of such a list once
    same_as_eager(of_arrays[name], call(values(1), np.arange(4.0)), call(values(2), np.arange(4.0) + 1), call(values(3), np.ones(4)))


@pytest.mark.parametrize("name", refused)
def test_errors_of_eager(name: str) -> None:
    report = same_as_eager(refused[name], call(values(1)), call(values(2)), fullgraph=False, checks=Checks(warnings="none"))
    assert report.raised and report.breaks


def test_the_warning_of_a_list_of_arrays() -> None:
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        compiled = stator.compile(list_of_arrays, backend="eager", fullgraph=True)
        found = []
        for function in (list_of_arrays, compiled, compiled):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                function(values(1), np.arange(4.0))
            found.append([(str(each.message).partition(" (")[0], each.lineno) for each in seen])
    finally:
        torch.set_warn_always(before)
    assert {text[:40] for text, _ in found[0]} == {"Creating a tensor from a list of numpy.n"}
    assert [set(each) for each in found] == [set(found[0])] * 3
