"""Recurrent layers with dropout between them under a compiler: eager's random numbers, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.torch_api.side_by_side import World, compare

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.5, batch_first=True),
    "lstm both ways": lambda: nn.LSTM(4, 3, num_layers=3, dropout=0.3, bidirectional=True),
    "lstm projected": lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.3, proj_size=2, batch_first=True),
    "gru": lambda: nn.GRU(4, 3, num_layers=2, dropout=0.3, bias=False),
    "rnn": lambda: nn.RNN(4, 3, num_layers=2, dropout=0.3, nonlinearity="relu"),
    "without dropout": lambda: nn.GRU(4, 3, num_layers=2),
}


def world(name: str) -> World:
    model, given = LAYERS[name](), []

    def step(x: Any) -> Any:
        sequence, ends = model(x)
        return sequence, ends

    def arguments(number: int) -> Any:
        given[:] = [torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(number)).requires_grad_()]
        return tuple(given)
    return World(step, arguments)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_streams(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    seen = compare(lambda: world(name), calls=3, backend=backend, tolerance=1e-6)
    assert not seen.breaks and seen.captures == [1, 0, 0]


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gradients(name: str) -> None:
    def make() -> World:
        model = LAYERS[name]()

        def step(x: Any) -> Any:
            loss = model(x)[0].pow(2).sum()
            loss.backward()
            return loss
        return World(step, lambda i: (torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(i)),),
                     lambda: [parameter.grad for parameter in model.parameters()])
    compare(make, calls=2, backend="aot_eager", tolerance=1e-5)


def test_an_lstm_that_learns_from_a_sequence_that_does_not() -> None:
    """The rule that takes it apart would pick a kernel without gradients, and the graph would fail."""
    torch.manual_seed(0)
    model = nn.LSTM(4, 3)
    compiled = stator.compile(model, backend="aot_eager")
    with events.record() as log:
        for _ in range(2):
            x = torch.randn(5, 2, 4)
            results = []
            for run in (model, compiled):
                model.zero_grad()
                sequence, last = run(x)
                sequence.pow(2).sum().backward()
                results.append([sequence, *last, *(parameter.grad.clone() for parameter in model.parameters())])
            torch.testing.assert_close(results[1], results[0])
    assert not [event for event in log if isinstance(event, events.EagerFallback)]


@pytest.mark.parametrize("name", LAYERS)
def test_no_dropout_where_nothing_is_learned(name: str) -> None:
    def make() -> World:
        model = LAYERS[name]().eval()

        def step(x: Any) -> Any:
            return model(x), torch.rand(2)
        return World(step, lambda i: (torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(i)),))
    seen = compare(make, calls=2, backend="aot_eager", tolerance=1e-6)
    assert not seen.breaks
