"""Whether a sparse tensor is coalesced: of an input a guarded fact, of others a break; never what its fake says."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events


def sparse(is_coalesced: bool) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 1.0]), requires_grad=True)
    return made.detach().coalesce().requires_grad_() if is_coalesced else made


def asked(x: torch.Tensor) -> Any:
    return x.coalesce(), x.is_coalesced(), x.coalesce() is x


def computed(x: torch.Tensor) -> Any:
    y = x * 2
    return y.coalesce(), y.is_coalesced()


def written(x: torch.Tensor) -> Any:
    x = x.detach()
    x.mul_(3)
    return x.is_coalesced(), x.coalesce()


def dense_gradient(x: torch.Tensor) -> Any:
    return x * 2, x.grad


def portrait(values: Any) -> Any:
    return [(value.to_dense().tolist(), value.is_sparse and (value.is_coalesced(), value._nnz()))
            if isinstance(value, torch.Tensor) else value for value in values]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [asked, computed, written, dense_gradient])
def test_coalesced(program: Any, backend: str) -> None:
    for order in ((False, True, False), (True, False, True)):
        compiled = stator.compile(program, backend=backend, options={"strict": True})
        for is_coalesced in order:
            found = []
            for run in (program, compiled):
                x = sparse(is_coalesced)
                if program is dense_gradient:
                    (x.to_dense() * 2).sum().backward()
                    (x * 2).sum().backward()
                found.append(portrait(run(x)))
            assert found[0] == found[1]


def dense_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    """A backend that knows strided memory alone, as Inductor does."""
    if any(isinstance(each, torch.Tensor) and each.layout is not torch.strided for each in example_inputs):
        raise NotImplementedError("no storage")
    return gm.forward


def times(s: torch.Tensor, d: torch.Tensor) -> Any:
    e = d * 3 + 1
    return torch.sparse.mm(s, e) + 1, e


def test_a_backend_that_takes_no_sparse_tensors_gets_the_rest() -> None:
    compiled = stator.compile(times, backend=dense_only)
    with events.record() as log:
        for number in (1.0, 2.0):
            s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([number, 2.0]), (2, 2))
            assert portrait(compiled(s, torch.ones(2, 2))) == portrait(times(s, torch.ones(2, 2)))
    assert any(isinstance(event, events.BackendCompiled) for event in log), "what is dense is compiled"


def test_what_fails_for_another_reason_is_raised() -> None:
    def failing(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        seen.append(1)
        raise NotImplementedError("no storage")

    seen: list[int] = []
    with pytest.raises(stator.BackendError, match="no storage"):
        stator.compile(lambda x: x * 2, backend=failing)(torch.ones(2))
    assert len(seen) == 1, "without sparse inputs there is nothing to leave out"
