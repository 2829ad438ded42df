"""Whole train steps beside eager: equal over several steps, and captured without a break at `backward()`."""

from __future__ import annotations

import pytest

from tests.torch_api.side_by_side import Make, compare
from tests.training.step_programs import STEPS


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_equal_to_eager_in_one_graph(make: Make, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    report = compare(make, 5, backend, 0.0 if backend == "eager" else 1e-5)
    assert report.causes == []
