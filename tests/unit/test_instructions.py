"""How many instructions guards need: counted, not timed, so that a busy machine changes nothing."""

from __future__ import annotations

import json

import pytest

from benchmarks import instructions

LEEWAY = 1.15  # compilers and torch's headers differ a little


@pytest.mark.slow
def test_no_kind_of_guard_needs_more_instructions_than_it_did():
    reason = instructions.unavailable()
    if reason:
        pytest.skip(reason)
    bounds = json.loads(instructions.BOUNDS.read_text())
    counted = instructions.count()
    assert counted.keys() == bounds.keys()
    grown = {name: (bounds[name], count) for name, count in counted.items() if count > LEEWAY * bounds[name] + 20}
    assert not grown, "kinds of guards that need more instructions than recorded (recorded, now)"
