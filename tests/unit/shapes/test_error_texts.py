"""A caught exception of a tensor operation has eager's class and eager's words, whatever the fake rule says."""

from __future__ import annotations

import pytest
import torch
from counting import run

import stator

FAILING = {
    "add": lambda x, y: x + y,
    "add in place": lambda x, y: x.add_(y),
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "view": lambda x, y: x.view(7, -1),
    "reshape": lambda x, y: x.reshape(5, 5),
    "index": lambda x, y: x[99],
    "dimension": lambda x, y: x.sum(5),
    "linear": torch.nn.functional.linear,
    "einsum": lambda x, y: torch.einsum("ij,jk->ik", x, y),
    "expand": lambda x, y: x.expand(2, 3),
    "gather": lambda x, y: x.gather(0, y),
    "split": lambda x, y: x.split([1, 1]),
    "permute": lambda x, y: x.permute(0, 0),
    "embedding": torch.nn.functional.embedding,
    "item": lambda x, y: x.item(),
    "int": lambda x, y: int(x),
    "float": lambda x, y: float(x),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FAILING)
def test_words(name, dynamic):
    failing = FAILING[name]

    def program(x, y):
        try:
            return failing(x + 1, y)
        except Exception as error:
            return type(error).__name__, str(error), x * 2

    calls = [(torch.ones(n, 4), torch.ones(5, m)) for n, m in ((3, 3), (6, 7), (8, 7))]
    run(program, calls, dynamic=dynamic)


def test_random_numbers_go_on_as_if_nothing_had_failed():
    def program(x, y):
        try:
            torch.dropout(x, 0.5, True) + y
        except RuntimeError:
            return torch.rand(2)

    torch.manual_seed(3)
    torch.dropout(torch.ones(3), 0.5, True)
    want = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(stator.compile(program, backend="eager")(torch.ones(3), torch.ones(4)), want)
