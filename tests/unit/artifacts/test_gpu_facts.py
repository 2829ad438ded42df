"""Facts of the process that an entry was made in: on a machine with a GPU, its kind and its driver, too."""

from __future__ import annotations

import types

import pytest
import torch

from stator.artifacts import environment


def test_facts_of_a_gpu_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    device = types.SimpleNamespace(name="a GPU", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: device)
    facts = environment.process_facts()
    assert facts["GPU"] == "a GPU 9.0" and facts["driver"] is None or type(facts["driver"]) is int
    monkeypatch.undo()
    assert "GPU" not in environment.process_facts() or torch.cuda.is_available()
