"""The models of the GPU table: each equals eager, is one graph, and breaks nowhere."""

from __future__ import annotations

import argparse

import pytest
import torch

import stator
from benchmarks import gpu_cases, gpu_measure
from stator import events


@pytest.mark.parametrize("name", gpu_cases.available())
def test_row(device: torch.device, name: str) -> None:
    chosen = argparse.Namespace(device=str(device), tiny=True)
    plain = gpu_measure.Target(name, chosen, None)
    with events.record() as log:
        ours = gpu_measure.Target(name, chosen, stator.compile, backend="eager")
        for _ in range(3):
            torch.testing.assert_close(ours.step(), plain.step(), rtol=2e-2, atol=2e-2)
    assert not [event for event in log if type(event) in (events.GraphBreak, events.EagerFallback,
                                                          events.InternalFailure)]


def test_the_table_is_printed(device: torch.device) -> None:
    from benchmarks import gpu

    chosen = gpu.parse(["--device", str(device), "--tiny", "--only", "vit", "--modes", "aot_eager"])
    row = gpu_measure.measure("vit", chosen)
    assert "error" not in row and row["modes"]["aot_eager"]["stator"]["same"]
    text = gpu.table({"vit": row})
    assert "vit" in text and "x" in text.splitlines()[2]
