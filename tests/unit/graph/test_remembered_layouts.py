"""Facts learned about an operation serve the next one like it, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import stator
from stator.graph.metadata.propagation import ExactNeeded


def attention(x: torch.Tensor) -> tuple[int, ...]:
    return F.scaled_dot_product_attention(x, x, x).stride()


def test_kernels_that_lay_their_results_out_differently() -> None:
    x, found = torch.randn(2, 8, 3, 16).transpose(1, 2), set()
    for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(kernel):
            made = stator.compile(attention, backend="eager")(x)
            assert made == attention(x)
            found.add(made)
    assert len(found) == 2, "or there is nothing to tell apart"


def allowing_less(x: torch.Tensor) -> tuple[int, ...]:
    before = torch.backends.cuda.math_sdp_enabled()
    torch.backends.cuda.enable_math_sdp(True)
    made = attention(x)
    torch.backends.cuda.enable_math_sdp(before)
    return made


@pytest.mark.parametrize("fn", [attention, allowing_less])
def test_a_choice_of_kernels_around_the_call_is_guarded(fn: Any) -> None:
    x, found = torch.randn(2, 8, 3, 16).transpose(1, 2), set()
    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(kernel):
            made = compiled(x)
            assert made == fn(x)
            found.add(made)
    assert len(found) == 2, "or there is nothing to tell apart"
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        assert compiled(x) == fn(x)


def reshaped(x: torch.Tensor) -> tuple[tuple[int, ...], ...]:
    y = x * 2
    before = y.t().stride()
    y.unsqueeze_(0)
    z = y * 2
    y.resize_(2, 2)
    return before, tuple(z.shape), tuple((y * 2).shape)


def written(x: torch.Tensor) -> tuple[bool, bool, bool]:
    y = torch.zeros(3)
    first = (y + 1).requires_grad
    y.add_(x)
    second = (y + 1).requires_grad
    y.detach_()
    return first, second, (y + 1).requires_grad


@pytest.mark.parametrize("program", [reshaped, written])
def test_a_tensor_that_was_changed_in_place_is_another(program: object) -> None:
    size = (2, 3) if program is reshaped else (3,)
    x = torch.ones(*size, requires_grad=program is written)
    assert stator.compile(program, backend="eager")(x) == program(x)  # type: ignore[operator]


@pytest.mark.parametrize("reach", [
    lambda s, base: s.as_strided((3, 4, 5), (20, 5, 1), 0),
    lambda s, base: torch.as_strided_copy(s, (3, 4, 5), (20, 5, 1), 0),
    lambda s, base: torch.as_strided_scatter(s, torch.ones(3), (3,), (20,), 0),
    lambda s, base: s.as_strided_((3, 4, 5), (20, 5, 1), 0),
    lambda s, base: torch.ops.aten.as_strided(s, (3, 4, 5), (20, 5, 1), 0),
    lambda s, base: torch.ops.aten.slice_inverse(s.detach(), base, 1, 2, 3, 1),
], ids=["method", "copy", "scatter", "in place", "operator", "inverse"])
def test_operations_that_reach_beyond_a_view(reach: Any) -> None:
    """Remembered views have storages of their own, in which there is nothing beyond them."""
    def program(x: torch.Tensor) -> Any:
        base = x + 1
        try:
            return reach(base[:, 2:3], base) + 1
        except RuntimeError as error:  # an error that only a fake makes would be the program's answer
            return str(error)

    x = torch.arange(60.0).view(3, 4, 5)
    stator.compile(program, backend="eager")(x)  # what is met here is remembered
    assert torch.equal(stator.compile(program, backend="eager")(x), program(x))


def written_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    first, second = a.diagonal(), b.diagonal()
    second.add_(1).mul_(2).sub_(1)
    return first * 2


def written_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    first, second = a.frac(), b.frac()
    second.add_(1).mul_(2)
    return first + second


@pytest.mark.parametrize("program", [written_view, written_result])
def test_writes_to_views_are_writes_to_what_they_show(program: Any) -> None:
    """The second operation is the first over again; a compiled graph leaves the counters of its inputs as eager does."""
    seen = []
    for function in (program, stator.compile(program, backend="aot_eager", fullgraph=True)):
        inputs = [torch.full((4, 4), 1.5) for _ in range(2)]
        made = function(*inputs)
        seen.append(([x._version for x in inputs], [x.tolist() for x in inputs], made.tolist()))
    assert seen[0] == seen[1]


def fills_from_a_parameter(x: torch.Tensor, weight: torch.nn.Parameter) -> tuple[torch.Tensor, bool]:
    y = x * 2
    part = y[0]
    y[x > 1] = weight
    y[1].copy_(weight)
    return part * y, part.requires_grad


@pytest.mark.parametrize("grad", [False, True])
def test_a_parameter_that_is_read_by_a_write_is_no_change(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    repeats: list[object] = []
    monkeypatch.setattr(ExactNeeded, "__init__", lambda self: repeats.append(self))
    x, weight = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.nn.Parameter(torch.tensor(5.0))
    with torch.set_grad_enabled(grad):
        compiled = stator.compile(fills_from_a_parameter, backend="eager")
        for given in (x, x + 1):
            value, wants_grad = compiled(given, weight)
            expected, wanted = fills_from_a_parameter(given, weight)
            assert torch.equal(value, expected) and (wants_grad, value.requires_grad) == (wanted, expected.requires_grad)
    assert bool(repeats) is grad  # in grad mode the write makes the tensor, and its views, want gradients
