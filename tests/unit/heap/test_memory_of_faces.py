"""Tensors and arrays on one memory: storages of their own, and version counters that only torch's operators move."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

import stator


def around(x: Any) -> Any:
    face = torch.from_numpy(x.detach().numpy())
    stator.graph_break()
    return face.storage_offset(), face.untyped_storage().nbytes(), face.data_ptr() - x.data_ptr()


def of_a_part(x: Any) -> Any:
    return torch.from_numpy(x.numpy()[1:]).storage_offset()


def as_a_tensor(x: Any) -> Any:
    return torch.as_tensor(x.numpy()).storage_offset()


@pytest.mark.parametrize("program", [around, of_a_part, as_a_tensor])
def test_a_tensor_on_a_face_has_a_storage_of_its_own(program: Any) -> None:
    compiled = stator.compile(program, backend="eager")
    for x in (torch.ones(4), torch.ones(4), torch.ones(8)[4:], torch.ones(8)[:4], torch.ones(4, 2)[:, 1], torch.ones(4)):
        assert compiled(x) == program(x)


def item_of_face(x: Any, w: Any) -> Any:
    y = x * w
    x.numpy()[0] = 5
    return y


def out_of_numpy(x: Any, w: Any) -> Any:
    y = x * w
    numpy.add(x.numpy(), 1, out=x.numpy())
    return y


def back_to_torch(x: Any, w: Any) -> Any:
    y = x * w
    torch.from_numpy(x.numpy()).add_(1)
    return y


def made_inside(x: Any, w: Any) -> Any:
    z = x * 2
    y = z * w
    z.numpy()[1] += 3
    return y


def literal(x: Any, w: Any) -> Any:
    array = numpy.array([1.0, 2.0, 3.0, 4.0], dtype=numpy.float32)
    y = torch.from_numpy(array) * w
    array[2] = 7
    return y + x


@pytest.mark.parametrize("program", [item_of_face, out_of_numpy, back_to_torch, made_inside, literal])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_writes_of_numpy_do_not_count(program: Any, backend: str) -> None:
    """Autograd raises on saved tensors that were written to, by their version counters; it does not see numpy."""
    compiled = stator.compile(program, backend=backend)
    for _ in range(2):
        seen = []
        for function in (program, compiled):
            x, w = torch.arange(4.0), torch.ones(4, requires_grad=True)
            result = function(x, w)
            result.sum().backward()
            seen.append((result.detach().tolist(), w.grad.tolist(), x.tolist(), x._version))
        assert seen[0][:3] == seen[1][:3]
        assert backend != "eager" or seen[0] == seen[1]


@pytest.mark.parametrize("write", [
    lambda x: x.data.add_(1), lambda x: torch.from_numpy(x.numpy()).add_(1), lambda x: x.add_(1),
    lambda x: x.numpy().__iadd__(1)])
def test_a_view_without_a_form_in_torch_sees_writes_through_any_alias(write: Any) -> None:
    def program(x: Any) -> Any:
        backwards = x.numpy()[::-1]
        write(x)
        return backwards.tolist()

    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        assert compiled(torch.arange(4.0)) == program(torch.arange(4.0))
