"""copy.deepcopy of tensors that lie oddly in memory, or in odd places: the copy lies as eager's does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import stator
from tests.torch_api.side_by_side import Counting, World, compare


def copied(x: torch.Tensor) -> Any:
    made = copy.deepcopy(x)
    made[0] = 7.0
    return made, made.stride(), made.untyped_storage().nbytes(), x + 1


def laid_out(size: tuple[int, ...], strides: tuple[int, ...], step: int, numbers: int) -> torch.Tensor:
    """A tensor alone on a storage: no view of another one."""
    return torch.empty(0).set_(torch.arange(float(numbers)).add(step).untyped_storage(), 0, size, strides)


def overlapping(step: int) -> torch.Tensor:
    """As many places as numbers; some are met twice, and some never."""
    return laid_out((2, 2, 2), (1, 1, 5), step, 8)


def one_row(step: int) -> torch.Tensor:
    return laid_out((1, 4), (7, 1), step, 4)


def turned(step: int) -> torch.Tensor:
    return laid_out((2, 3), (1, 2), step, 6)


def plain(step: int) -> torch.Tensor:
    return laid_out((2, 3), (3, 1), step, 6)


def a_part(step: int) -> torch.Tensor:
    return torch.arange(6.0).add(step)[2:]


def by_turns(step: int) -> torch.Tensor:
    return (plain, overlapping, one_row, turned)[step](step)


@pytest.mark.parametrize("make", [overlapping, one_row, turned, plain, a_part, by_turns], ids=lambda make: make.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_where_the_copy_lies(make: Any, backend: str) -> None:
    compare(lambda: World(copied, lambda step: (make(step),)), calls=4, backend=backend)


def copied_twice(x: torch.Tensor) -> Any:
    first = copy.deepcopy(x)
    return first + 1, copy.deepcopy(first) * 2, copy.deepcopy([x, x])[1] is x


def copied_after_a_write(x: torch.Tensor) -> Any:
    x.add_(1)
    return copy.deepcopy(x) * 2


@pytest.mark.parametrize("program", [copied_twice, copied_after_a_write], ids=lambda each: each.__name__)
def test_a_tensor_that_fills_its_storage_is_copied_in_the_graph(program: Any) -> None:
    """Also where a copy made before the graph would be another one: after a write, and in inference mode."""
    for mode in (False, True):
        with torch.inference_mode(mode):
            seen = compare(lambda: World(program, lambda step: (plain(step),)), calls=2)
            assert not seen.breaks, seen.causes


def in_inference_mode(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        made = copy.deepcopy(x)
    return made.is_inference(), made * 2


def under_a_mode(x: torch.Tensor) -> Any:
    with Counting() as mode:
        made = copy.deepcopy(x)
    return made * 2, mode.seen


def of_a_conjugate(x: torch.Tensor) -> Any:
    made = copy.deepcopy(torch.complex(x, x).conj())
    return made.is_conj(), made * 2


def inside_a_checkpoint(x: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda t: copy.deepcopy(x) * t, x, use_reentrant=False)


def with_an_attribute(x: torch.Tensor) -> Any:
    x.label = ["a"]
    made = copy.deepcopy(x)
    return made.label, made.label is x.label, made * 2


def with_a_gradient(x: torch.Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    leaf.grad = torch.ones_like(leaf)
    made = copy.deepcopy(leaf)
    return made.grad, made.grad is leaf.grad, made.requires_grad


@pytest.mark.parametrize("program", [in_inference_mode, under_a_mode, of_a_conjugate, inside_a_checkpoint, with_an_attribute,
                                     with_a_gradient], ids=lambda each: each.__name__)
@pytest.mark.parametrize("make", [plain, a_part, turned], ids=lambda make: make.__name__)
def test_odd_places(program: Any, make: Any) -> None:
    compare(lambda: World(program, lambda step: (make(step),)), calls=2)


def copied_in_inference_mode(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        return copy.deepcopy(x)


@pytest.mark.parametrize("make", [plain, a_part], ids=lambda make: make.__name__)
def test_a_copy_made_in_inference_mode_is_of_it(make: Any) -> None:
    compiled = stator.compile(copied_in_inference_mode, backend="eager")
    for step in range(2):
        made = compiled(make(step))
        assert made.is_inference() and torch.equal(made, make(step))


def test_a_sparse_tensor_is_copied_as_it_is() -> None:
    compiled = stator.compile(copy.deepcopy, backend="eager", options={"strict": True})
    for step in range(2):
        x = torch.eye(3).mul(step + 1).to_sparse()
        assert torch.equal(compiled(x).to_dense(), x.to_dense())


def test_a_parameter_copied_under_effects_and_modes() -> None:
    weight = torch.nn.Parameter(torch.arange(3.0))

    def program(x: torch.Tensor, mode: int) -> Any:
        if mode == 1:
            with torch.inference_mode():
                made = copy.deepcopy(weight)
                return made.is_inference(), made.detach() * x
        if mode == 2:
            with Counting() as counting:
                made = copy.deepcopy(weight)
            return made.detach() * x, counting.seen
        print("before")
        made = copy.deepcopy(weight)
        with torch.no_grad():
            weight.add_(1)
        return made.detach() * x, made.requires_grad, type(made)

    compiled = stator.compile(program, backend="eager")
    for mode in (1, 2, 3, 1, 2, 3):
        before = weight.detach().clone()
        expected = program(torch.ones(3), mode)
        with torch.no_grad():
            weight.copy_(before)
        found = compiled(torch.ones(3), mode)
        assert str(found) == str(expected)
