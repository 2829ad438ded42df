"""State of the process inside a capture: files that are imported, limits of conversions."""

from __future__ import annotations

import importlib
import sys

import torch

import stator
from stator import events


def test_a_module_that_the_call_has_written_breaks(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def written_and_imported(x, name, value):
        path = f"{tmp_path}/{name}.py"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"VALUE = {value}\n")
        importlib.invalidate_caches()
        try:
            return __import__(name).VALUE, x + 1
        finally:
            del sys.modules[name]

    compiled = stator.compile(written_and_imported, backend="eager")
    with events.record() as log:
        for name, value in (("written_first", 3), ("written_second", 4), ("written_first", 3)):
            found, total = compiled(torch.ones(2), name, value)
            assert found == value and torch.equal(total, torch.ones(2) + 1)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]
