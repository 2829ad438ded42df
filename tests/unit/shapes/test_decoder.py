"""An autoregressive decoder with a preallocated cache, written and read through tensor-valued positions."""

from __future__ import annotations

import pytest
import torch

import stator
from stator import events

STEPS, WIDTH, HEADS = 64, 16, 2


class Decoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(1, STEPS, WIDTH))
        self.register_buffer("values", torch.zeros(1, STEPS, WIDTH))

    def forward(self, x: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        self.keys[:, start:end] = key
        self.values[:, start:end] = value
        keys, values = self.keys[:, :end], self.values[:, :end]
        weights = torch.softmax(query @ keys.transpose(1, 2) / WIDTH**0.5, dim=-1)
        return x + self.out(weights @ values)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_decoder_is_one_graph(backend):
    torch.manual_seed(0)
    reference = Decoder().eval()
    compiled_model = Decoder().eval()
    compiled_model.load_state_dict(reference.state_dict())
    compiled = stator.compile(compiled_model, backend=backend, fullgraph=True)
    x = y = torch.randn(1, 1, WIDTH)
    with torch.no_grad(), events.record() as log:
        for step in range(STEPS):
            start = torch.tensor(step)
            x = reference(x, start, start + 1)
            y = compiled(y, start, start + 1)
            assert torch.allclose(x, y, atol=1e-6)
    assert torch.allclose(reference.keys, compiled_model.keys, atol=1e-6)
    assert sum(isinstance(event, events.CaptureFinished) for event in log) <= 2
    assert not [event for event in log if isinstance(event, events.GraphBreak)]
