"""A dropout of everything draws no random numbers and keeps nan, compiled as in eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from stator import events

attention = nn.MultiheadAttention(4, 2, dropout=1.0)
PROGRAMS = {
    "function": lambda x: F.dropout(x, p=1.0),
    "torch": lambda x: torch.dropout(x, 1.0, True),
    "in place": lambda x: F.dropout(x * 1, p=1.0, inplace=True),
    "module": lambda x, module=nn.Dropout(1.0): module(x),
    "features": lambda x: F.dropout2d(x, p=1.0),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=1.0),
    "heads": lambda x: attention(x[0], x[0], x[0])[0],
    "some": lambda x: F.dropout(x, p=0.5),
    "none": lambda x: F.dropout(x, p=0.0).add(1),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("learns", [False, True])
def test_the_same_values_and_the_same_stream(name, backend, learns):
    torch.manual_seed(0)
    values = torch.randn(2, 3, 4, 4)
    values[0, 0, 0, 0] = float("inf")

    def outcome(function):
        x = values.clone().requires_grad_(learns)
        torch.manual_seed(1)
        y = function(x)
        state = torch.get_rng_state()
        grad = torch.autograd.grad(y.sum(), x)[0] if learns else None
        return y, state, grad

    expected = outcome(PROGRAMS[name])
    with events.record() as log:
        results = outcome(stator.compile(PROGRAMS[name], backend=backend))
    assert not [event for event in log if isinstance(event, events.EagerFallback)], "the backend has it"
    for found, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
