"""Operations whose C++ code looks at values: captured by the shape that torch's Python code for them gives."""

from __future__ import annotations

import pytest
import torch

import stator
from stator import events

WINDOW = torch.hann_window(16)


def back_in_time(spectrum: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    return torch.istft(spectrum * 2, 16, 4, window=window) + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_istft_is_captured(backend: str) -> None:
    compiled = stator.compile(back_in_time, backend=backend, fullgraph=True)
    with events.record() as log:
        for size in (64, 80, 96):
            spectrum = torch.stft(torch.randn(2, size), 16, 4, window=WINDOW, return_complex=True)
            torch.testing.assert_close(compiled(spectrum, WINDOW), back_in_time(spectrum, WINDOW))
    assert any(isinstance(event, events.BackendCompiled) for event in log)
    assert not any(isinstance(event, events.EagerFallback) for event in log)


def test_what_it_looks_for_is_raised() -> None:
    """A window that covers nothing is found by the operation itself."""
    compiled = stator.compile(back_in_time, backend="eager", fullgraph=True)
    spectrum = torch.stft(torch.randn(2, 64), 16, 4, window=WINDOW, return_complex=True)
    compiled(spectrum, WINDOW)
    for function in (back_in_time, compiled):
        with pytest.raises(RuntimeError, match="window overlap add"):
            function(spectrum, torch.zeros(16))
