"""Errors that a train step handles: the writes of its optimiser come later, and need no copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import look_at


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_error_before_large_writes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")

    def make() -> World:
        model = nn.Embedding(8, 1 << 18)  # 8 MiB
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(words: Any) -> Any:
            optimiser.zero_grad()
            try:
                out = model(words)
            except IndexError:
                out = model(words.clamp(max=7)) * 2
            loss = F.mse_loss(out, torch.ones_like(out))
            loss.backward()
            optimiser.step()
            return loss
        return World(step, lambda i: (torch.tensor([1, 9 if i == 2 else 5]),), look_at(model))
    causes = compare(make, 4, backend, 0.0 if backend == "eager" else 1e-6).causes
    assert bool(causes) is (backend != "eager")  # compilers move counters of writes, which show whether any was done
