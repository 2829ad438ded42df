"""A change between two processes is a miss or changes nothing: a sample of `mutations.py`."""

from __future__ import annotations

import pytest

import stator
from tests.artifacts.mutations import UNRELATED, changes, trial

SAMPLE = 40


def test_no_stale_result() -> None:
    hits = 0
    with trial() as made:
        for change in changes(SAMPLE, 1):
            for outcome in made.outcomes(change):
                assert not outcome.stale, f"{change.name}, {outcome.root}: {outcome.stale}"
                assert outcome.hit or not change.must_hit, f"{change.name}, {outcome.root}: {outcome.why}"
                hits += outcome.hit
            stator.reset()
    assert hits > SAMPLE // 4  # what does not concern a root leaves its entry in use


def test_a_stale_result_would_be_found() -> None:
    with trial(ruin=True) as made:
        assert all(outcome.stale for outcome in made.outcomes(UNRELATED[0]))


@pytest.mark.slow  # a thousand changes take minutes
def test_a_thousand_changes() -> None:
    with trial() as made:
        found = [outcome for change in changes(1000, 2) for outcome in made.outcomes(change)]
    assert [outcome for outcome in found if outcome.stale] == []
