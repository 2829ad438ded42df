"""A slice of torch's sample databases, captured and compared; `python -m tests.torch_api.coverage` runs them all."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from torch_api.coverage import verdict_of  # noqa: E402
from torch_api.judge import UNFIT  # noqa: E402
from torch_api.samples import Sample, module_samples, operator_samples  # noqa: E402

SLICE = [
    *itertools.islice(module_samples(training=True), 0, None, 2),
    *itertools.islice(operator_samples(), 0, None, 20),
]


@pytest.mark.parametrize("sample", SLICE, ids=lambda sample: sample.name)
def test_sample_equals_eager(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    verdict = verdict_of(sample, "eager")
    assert not verdict.bad, verdict
    if verdict.kind == UNFIT:
        pytest.skip(verdict.detail)
