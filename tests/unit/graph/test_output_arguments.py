"""Operators given out=, sparse and TorchScript writers: what eager does to out=, and what a failed graph takes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stator import events
from tests.comparison import Checks, call, same_as_eager

aten = torch.ops.aten
CHECKS = Checks(warnings="none", seed=3)
BEYOND = torch.tensor([1 << 20])


def mean_of_squares(x: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    aten.mse_loss.out(x, x * 2, out=base[0])
    return base


def mean_on_an_array(x: torch.Tensor, base: torch.Tensor) -> Any:
    memory = torch.ones(1)
    array = memory.numpy()
    try:
        aten.mse_loss.out(x, x * 2, out=memory.view(()))
    except RuntimeError as error:
        return str(error)
    return array.copy()


def margin(x: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    aten.soft_margin_loss.out(x, x * 2, out=base[0])
    return base


def onto_an_array(x: torch.Tensor, base: torch.Tensor) -> Any:
    array = base.numpy()
    aten.binary_cross_entropy.out(x, x, out=base[0])
    return array


def combined(x: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    return aten._compute_linear_combination.out(x, torch.ones(1, 4), out=base.view(1, 8)[:, :1].clone())


def stacked(x: torch.Tensor, base: torch.Tensor) -> Any:
    out = torch.zeros(2, 2, 2)
    aten._stack.out([x.view(2, 2), x.view(2, 2)], 0, out=out)
    return out, out.shape


def ranked(x: torch.Tensor, base: torch.Tensor) -> Any:
    out = torch.zeros(2, 2, dtype=torch.int64)
    aten.linalg_matrix_rank.out_tol_tensor(x.view(2, 2), torch.tensor(0.1), out=out)
    return out, out.shape, out.ndim


def limited(x: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    return aten.randint_like.Tensor_out(x, torch.tensor(9), out=torch.zeros(4))


def copied_column(x: torch.Tensor, base: torch.Tensor) -> Any:
    return x.view(4, 1).t().contiguous().as_strided((4, 1), (1, 4)).numpy().copy().strides


def refused(x: torch.Tensor, base: torch.Tensor) -> Any:
    """Dunder methods turn a refusal of torch's parser into NotImplemented; those that write are no exception."""
    return x.__and__(1, out=base), x.__ilshift__("a"), x.__ior__(1, 2)


PROGRAMS: list[Callable[..., Any]] = [mean_of_squares, mean_on_an_array, margin, onto_an_array, combined, stacked, ranked, limited,
                                       copied_column, refused]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_done_to_outputs(program: Callable[..., Any], backend: str) -> None:
    same_as_eager(program, lambda: call(torch.arange(1.0, 5) / 8, torch.ones(8)), fullgraph=False, backend=backend, checks=CHECKS)


def test_a_plain_output_is_compiled() -> None:
    """The observation of the kernel finds nothing: one graph, which the compiler has; an operand may be out= itself."""
    def program(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.mul(out, x, out=out)
        return torch.add(x, 1, out=out)

    with events.record() as log:
        same_as_eager(program, lambda: call(torch.ones(3), torch.zeros(3)), backend="aot_eager")
    assert not [event for event in log if isinstance(event, events.EagerFallback)]


def test_detaching_a_view_raises() -> None:
    def program(x: torch.Tensor) -> Any:
        aten.detach_.default(x)
        return x.shape

    same_as_eager(program, lambda: call(torch.ones(3)), lambda: call(torch.ones(4)[1:]), fullgraph=False, backend="aot_eager",
                  checks=CHECKS)


def drawn(x: torch.Tensor) -> torch.Tensor:
    aten._no_grad_normal_.default(x, 0.0, 1.0)
    return torch.ones(3)[BEYOND]


def added(x: torch.Tensor) -> torch.Tensor:
    aten.sspaddmm.out(x, x, torch.eye(3), out=x)
    return torch.ones(3)[BEYOND]


@pytest.mark.parametrize(("program", "given"), [(drawn, lambda: torch.zeros(3)), (added, lambda: torch.eye(3).to_sparse())])
def test_a_failed_graph_takes_back(program: Callable[..., Any], given: Callable[[], torch.Tensor]) -> None:
    """Operators of TorchScript have no tags; the elements of a sparse tensor are tensors of their own."""
    held: list[torch.Tensor] = []

    def inputs() -> Any:
        x = given()
        held.append(x)
        return call(x)

    same_as_eager(program, inputs, fullgraph=False, checks=CHECKS)
    assert len(held) > 1 and all(torch.equal(each.to_dense(), held[0].to_dense()) for each in held)
