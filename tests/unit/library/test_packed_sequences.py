"""Packed sequences through recurrent layers: one graph, compared with eager for several lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils import rnn

import stator
from tests.comparison import GraphCounter

LAYERS = {
    "lstm": lambda: torch.nn.LSTM(3, 4, num_layers=2, batch_first=True),
    "both ways": lambda: torch.nn.LSTM(3, 4, bidirectional=True),
    "projected": lambda: torch.nn.LSTM(3, 4, proj_size=2, batch_first=True),
    "gru": lambda: torch.nn.GRU(3, 4, batch_first=True),
    "rnn": lambda: torch.nn.RNN(3, 4, nonlinearity="relu", bias=False),
}
LENGTHS = ([5, 3, 2], [5, 3, 2], [4, 4, 1], [1, 1, 1])


class Encoder(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module, **options: Any) -> None:
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x: Any, lengths: Any) -> Any:
        first = self.layer.batch_first
        packed = rnn.pack_padded_sequence(x * 2, lengths, first, self.options.get("enforce_sorted", True))
        out, state = self.layer(packed)
        padded, found = rnn.pad_packed_sequence(out, first, -1.0, self.options.get("total_length"))
        return padded.sin(), found + 1, state, out.batch_sizes


def observed(model: Any, function: Any, lengths: Any) -> list[Any]:
    torch.manual_seed(len(lengths))
    x = torch.randn(3, 5, 3) if model.layer.batch_first else torch.randn(5, 3, 3)
    x.requires_grad_()
    model.zero_grad()
    padded, found, state, sizes = function(x, lengths)
    padded.sum().backward()
    states = list(state) if isinstance(state, tuple) else [state]
    return [padded, padded.stride(), found, *states, sizes, x.grad, *[each.grad for each in model.parameters()]]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer(name: str, backend: str) -> None:
    torch.manual_seed(0)
    model = Encoder(LAYERS[name]())
    compiled = stator.compile(model, backend=backend, fullgraph=True)
    for lengths in LENGTHS[::2]:
        given = torch.tensor(lengths)
        torch.testing.assert_close(observed(model, compiled, given), observed(model, model, given))


@pytest.mark.parametrize("options", [{"enforce_sorted": False}, {"total_length": 7}], ids=["unsorted", "longer"])
def test_options(options: dict[str, Any]) -> None:
    model = Encoder(LAYERS["gru"](), **options)
    counter = GraphCounter("eager")
    compiled = stator.compile(model, backend=counter.backend)
    for lengths in ([5, 3, 2], [5, 3, 2], [4, 2, 1]):  # the last: numbers in a list that changed are symbols
        torch.testing.assert_close(observed(model, compiled, lengths), observed(model, model, lengths))


def test_lengths_that_torch_refuses() -> None:
    model = Encoder(LAYERS["gru"]())
    compiled = stator.compile(model, backend="eager")
    for lengths in ([5, 3, 2], [3, 5, 2], [5, 3, 0], [6, 3, 2]):
        try:
            expected: Any = observed(model, model, torch.tensor(lengths))
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as found:
                observed(model, compiled, torch.tensor(lengths))
            assert str(found.value) == str(error)
        else:
            torch.testing.assert_close(observed(model, compiled, torch.tensor(lengths)), expected)


def test_lengths_that_the_graph_computes() -> None:
    model = Encoder(LAYERS["gru"]())

    def f(x: Any, mask: Any) -> Any:
        return model(x, mask.sum(1).long())

    compiled = stator.compile(f, backend="eager")
    for lengths in ([5, 3, 2], [5, 4, 1]):
        mask = torch.tensor([[float(step < length) for step in range(5)] for length in lengths])
        torch.testing.assert_close(observed(model, compiled, mask), observed(model, f, mask))


def test_a_break_between_packing_and_padding() -> None:
    layer = LAYERS["lstm"]()

    def f(x: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, True)
        stator.graph_break()
        out, _ = layer(packed)
        return rnn.pad_packed_sequence(out, True)

    compiled = stator.compile(f, backend="eager")
    for lengths in LENGTHS:
        x = torch.randn(3, 5, 3)
        torch.testing.assert_close(compiled(x, torch.tensor(lengths)), f(x, torch.tensor(lengths)))
