"""A quick part of the programs on two gloo processes; `python -m tests.ranks` runs all of them."""

from __future__ import annotations

import tempfile

import pytest

from tests.ranks import __main__ as launcher
from tests.ranks.worker import PROGRAMS

QUICK = [name for name, program in PROGRAMS.items() if program.quick]


@pytest.fixture(scope="module")
def rows() -> launcher.Rows:
    with tempfile.TemporaryFile("w+") as said:
        found = launcher.run(QUICK, ["stator"], ["eager", "aot_eager"], seconds=500, stderr=said)
        said.seek(0)
        print(said.read()[-4000:])
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", QUICK)
def test_equals_eager_on_every_rank(rows: launcher.Rows, name: str, backend: str) -> None:
    row = rows[name, "stator", backend]
    assert row["right"], row["differences"]
    assert row["whole"] or not PROGRAMS[name].whole, row["why"]
