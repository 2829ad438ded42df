"""The list of PyTorch's tests: judgements by name and last lines, the last record of a test, no line without a reason."""

import json
from pathlib import Path

import pytest

from tools import pytorch_page
from tools.pytorch_page import Record


def test_the_first_judgement_that_fits_counts() -> None:
    known = pytorch_page.judgements("# a comment\nNested|SB017 | behaviour | sizes\ntest_ | texts | logs\n")
    found = [pytorch_page.judge(record, known) for record in (
        Record("test_a.py", "Nested.test_x", "refused", ""), Record("test_a.py", "A.test_x", "different", "E\nSB017 sizes"),
        Record("test_a.py", "A.test_y", "different", "x\nTo execute this test, SB017"), Record("a.py", "A.other", "counts", ""))]
    assert [each and each.kind for each in found] == ["behaviour", "behaviour", "texts", None]
    with pytest.raises(ValueError, match="no such kinds"):
        pytorch_page.judgements("x | opinion | none")


def test_the_last_record_counts(tmp_path: Path) -> None:
    rows = [{"file": "test_a.py", "test": f"A.{name}", "verdict": verdict, "detail": ""}
            for name, verdict in (("one", "different"), ("two", "passed"), ("one", "passed"), ("two", "refused"))]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    records = pytorch_page.last_records([str(path)])
    text = pytorch_page.page(records, {}, pytorch_page.judgements("two | counts | a number"))
    assert "of 2 tests 1 pass" in text and "| `test_a` | `two` | not run | counts | a number |" in text
    assert "`one`" not in text


def test_tests_that_were_run_again() -> None:
    known = pytorch_page.judgements("two | counts | a number\nthree | texts | a message")
    records = {name: Record("test_a.py", f"A.{name}", "different", "") for name in ("one", "two", "three")}
    there = {("test_a.py", "A.two"): Record("test_a.py", "A.two", "passed", "")}
    text = pytorch_page.page({each.key: each for each in records.values()}, there, [*known, *pytorch_page.judgements("one | texts | x")])
    again = {each.key: each for each in (Record("test_a.py", "A.one", "passed", ""), Record("test_a.py", "A.three", "counts", ""))}
    changed = pytorch_page.page_again(text, again, known)
    left = [Record("test_a.py", "A.one", "passed", ""), records["two"], records["three"]]
    assert changed == pytorch_page.page({each.key: each for each in left}, there, known)


def test_each_line_of_the_page_has_a_reason() -> None:
    rows = [line.split(" | ") for line in pytorch_page.PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 200 and all(row[3] in pytorch_page.KINDS and len(row[4]) > 10 for row in rows)
