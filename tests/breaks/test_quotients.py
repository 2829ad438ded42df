"""Divisions by integers that the graph computes: captured, and ZeroDivisionError as eager raises it."""

from __future__ import annotations

import pytest
import torch

import stator

LARGE = 2**53 + 1


def count(x):
    return (x != 3).sum().item()


def of_floats(x):
    return {"loss": x.sum().item() / count(x)}, x * 2


def of_integers(x):
    return count(x) / count(x + 1), 7 / count(x), True / count(x), LARGE / count(x)


def of_sizes(x):
    return x.shape[0] / x.nonzero().shape[0], 1.5 / x.nonzero().shape[0]


def in_place(x):
    mean = x.sum().item()
    mean /= count(x)
    return x * mean


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [of_floats, of_integers, of_sizes, in_place])
def test_quotients(program, backend):
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    for x in (torch.ones(4), torch.tensor([1.0, 3.0, 2.0, 0.0]), torch.full((4,), 3.0), torch.zeros(4), torch.ones(4)):
        outcomes = []
        for call in (program, compiled):
            try:
                outcomes.append(repr(call(x)))
            except ZeroDivisionError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
