"""Whether a sparse tensor is coalesced: of an input a guarded fact, of others a break; never what its fake says."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator


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
