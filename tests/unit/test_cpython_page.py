"""The page of CPython's tests is what the stored counts say; records are counted by their last verdict."""

from __future__ import annotations

import json

from tools import cpython_page


def record(test: str, verdict: str, compiled: object = ()) -> str:
    return json.dumps({"module": "test_bool", "test": test, "verdict": verdict, "compiled": compiled})


def test_page_is_up_to_date() -> None:
    text, store = cpython_page.PAGE.read_text(), json.loads(cpython_page.STORE.read_text())
    assert text[text.index("| module |"):] == cpython_page.table(store)
    for version in store:
        assert cpython_page.totals(store[version]) in " ".join(text.split())


def test_the_last_record_of_a_test_counts() -> None:
    lines = [record("a", "refused"), record("b", "whole"), record("c", "skipped", None), record("a", "different")]
    assert cpython_page.counted(lines) == {"test_bool": {"plain": 2, "whole": 1, "timeout": 0, "different": 1}}
