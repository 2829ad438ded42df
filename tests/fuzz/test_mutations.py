"""A slice of the guard fuzzer: no change between calls leaves a stale result behind."""

from __future__ import annotations

import random

import pytest
import torch

import stator
from tests.fuzz.changing_programs import subjects
from tests.fuzz.mutations import Session, changes_of, reachable, run


@pytest.mark.parametrize("seed", range(4))
def test_no_stale_result(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert run(60, seed, report=len) >= 60


def test_a_stale_result_is_found() -> None:
    """A compiled function whose guards are not asked again is caught at once."""
    session = Session(1)
    subject = next(each for each in session.subjects if each.name == "scale")
    frozen = subject.run(*subject.args)
    session.compiled[subject.name] = lambda *args: frozen
    assert session.difference(subject) is None
    with torch.no_grad():
        subject.run.weight.mul_(2)  # type: ignore[attr-defined]
    assert session.difference(subject) is not None
    stator.reset()


def test_every_subject_has_facts_to_change() -> None:
    rng = random.Random(0)
    for subject in subjects(0):
        if subject.roots:
            assert sum(1 for value in reachable(subject.roots) for _ in changes_of(value, rng)) >= 3, subject.name
