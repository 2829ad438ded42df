"""The stage goldens are what the stages make today."""

from __future__ import annotations

import pytest

from tests.golden.stages import FOLDER, IS_REFERENCE, PROGRAMS, REFERENCE, STAGES, portable, stages


@pytest.mark.skipif(not IS_REFERENCE, reason=f"the goldens are those of {REFERENCE}: instructions and operations differ elsewhere")
@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_are_the_golden_ones(name: str) -> None:
    for stage, text in stages(name).items():
        golden = (FOLDER / name / stage).read_text()
        assert text == golden, f"{name}/{stage} differs: read it, then `python -m tests.golden --update {name}`"


def test_there_are_twenty_programs_with_all_stages() -> None:
    assert len(PROGRAMS) >= 20
    for name in PROGRAMS:
        assert sorted(path.name for path in (FOLDER / name).iterdir() if path.is_file()) == sorted((*STAGES, "program.py"))


def test_texts_are_portable() -> None:
    assert portable("<code at 0x7fbe6b5c02a0>, 140455683242656") == "<code at 0xaddress>, 0xaddress"
    assert portable("in '/any/where/lib/python3.11/site-packages/torch/x.py'") == "in '<installed>/torch/x.py'"
    assert portable("# /any/where/lib/python3.11/random.py:3") == "# <python>/random.py:3"
