"""A slice of torch's sample databases, captured and compared; `python -m tests.torch_api.coverage` runs them all."""

from __future__ import annotations

import itertools
import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from torch_api.judge import CAPTURED, UNFIT  # noqa: E402
from torch_api.coverage import verdict_of  # noqa: E402
from torch_api.samples import Sample, module_samples, operator_samples  # noqa: E402

EVERY_OPERATOR = 12  # every twelfth sample of the operators, all the modules
SLICE = [*module_samples(training=True), *itertools.islice(operator_samples(), 0, None, EVERY_OPERATOR)]


@pytest.mark.parametrize("sample", SLICE, ids=lambda sample: sample.name)
def test_sample_equals_eager(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    verdict = verdict_of(sample, "eager")
    assert not verdict.bad, verdict
    if verdict.kind == UNFIT:
        pytest.skip(verdict.detail)


def test_most_of_the_slice_is_captured_whole() -> None:
    logging.disable(logging.ERROR)
    try:
        kinds = [verdict_of(sample, "eager").kind for sample in SLICE[::10]]
    finally:
        logging.disable(logging.NOTSET)
    fit = [kind for kind in kinds if kind != UNFIT]
    assert fit.count(CAPTURED) >= 0.85 * len(fit), kinds
