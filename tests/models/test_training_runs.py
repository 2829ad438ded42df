"""Twenty steps of training, compiled and eager: the losses, the last gradients and the weights they end with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trained import TRAINED

import stator
from stator import events

STEPS = 20
BACKENDS = [("eager", 1e-6), ("aot_eager", 1e-4), pytest.param("inductor", 2e-3, marks=pytest.mark.slow)]


def train(name: str, backend: str | None) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    make, batch = TRAINED[name]
    model = make()
    compiled = model if backend is None else stator.compile(model, backend=backend)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)
        loss = compiled(*batch(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    return losses, gradients, dict(model.state_dict())


@pytest.mark.parametrize("backend,tolerance", BACKENDS, ids=["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_equal_eager(name: str, backend: str, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    expected = train(name, None)
    with events.record() as log:
        found: Any = train(name, backend)
    for left, right in zip(expected, found, strict=True):
        torch.testing.assert_close(right, left, rtol=tolerance, atol=tolerance)
    assert not [event for event in log if isinstance(event, (events.GraphBreak, events.EagerFallback))]
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 1
