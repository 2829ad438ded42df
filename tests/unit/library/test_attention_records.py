"""SDPAParams made inside the call: its fields are the tensors of the call, and it leaves the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.backends.cuda import SDPAParams

import stator

FIELDS = "query key value attn_mask dropout is_causal enable_gqa".split()


def made(q: Any, k: Any, mask: Any) -> Any:
    first = q + 1
    params = SDPAParams(first, k, k, mask, 0.1, True, False)
    other = SDPAParams(k, k, k, None, 0.0, q.shape[0] > 2, False)
    return params.query * 2, first, params, other, params, params.key is k, params.attn_mask is mask, params.dropout


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_made_inside(backend: str) -> None:
    compiled = stator.compile(made, backend=backend, fullgraph=True)
    for size in (2, 3, 4, 2):
        q, k, mask = torch.randn(size), torch.randn(size), torch.randn(size)
        got, expected = compiled(q, k, mask), made(q, k, mask)
        assert torch.equal(got[0], expected[0]) and got[5:] == expected[5:]
        assert got[2] is got[4] and got[2].query is got[1] and got[2].key is got[2].value is k and got[2].attn_mask is mask
        for field in FIELDS[4:]:
            assert [getattr(each, field) for each in got[2:4]] == [getattr(each, field) for each in expected[2:4]]
        assert got[3].attn_mask is None


def test_parameters_from_outside_are_read_natively() -> None:
    def fn(params: Any, x: Any) -> Any:
        return params.query + x, params

    compiled = stator.compile(fn, backend="eager")
    for _ in range(2):
        x = torch.randn(3)
        params = SDPAParams(x, x, x, None, 0.0, False, False)
        total, same = compiled(params, x)
        assert same is params and torch.equal(total, x + x)
