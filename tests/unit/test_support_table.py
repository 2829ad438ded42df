"""The page of supported versions holds recorded outcomes of real runs, and nothing else."""

from __future__ import annotations

import pytest

from tools import preflight, support_table

LOG = """\
..F.s [100%]
=========================== short test summary info ============================
SKIPPED [2] tests/unit/x.py:3: no such compiler
FAILED tests/lang/test_14_parameters.py::wrong_calls - wrong_calls: differs
ERROR tests/unit/y.py::test_z
1 failed, 1009 passed, 2 skipped, 1 error, 5 warnings in 439.99s (0:07:19)
"""


def test_outcome_is_read_from_what_pytest_prints():
    counts, failures, skips = support_table.outcome(LOG)
    assert counts["passed"] == 1009 and counts["failed"] == 1 and counts["skipped"] == 2 and counts["error"] == 1
    assert failures == ["tests/lang/test_14_parameters.py::wrong_calls", "tests/unit/y.py::test_z"]
    assert skips == ["no such compiler"]


def test_a_run_that_was_cut_off_is_no_outcome():
    with pytest.raises(SystemExit, match="summary"):
        support_table.outcome("..... [ 40%]\n")


def test_failures_without_names_are_no_outcome():
    with pytest.raises(SystemExit, match="-rfEs"):
        support_table.outcome("2 failed, 3 passed in 1.00s\n")


def test_the_page_is_made_of_the_records():
    assert support_table.PAGE.read_text() == support_table.page(support_table.stored())


def test_the_newest_torch_was_run():
    newest = ".".join(map(str, preflight.NEWEST_TESTED_TORCH))
    assert any(run["torch"].startswith(newest + ".") and run["passed"] for run in support_table.stored())
