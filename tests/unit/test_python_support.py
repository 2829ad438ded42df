"""The table of types and slots is true on the running Python: a sample of its cells here, all of them with `-m slow`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tools import python_support as table

STEP = 97  # prime: the sample meets every type, and slots of every kind


@pytest.fixture(autouse=True)
def _no_module_left() -> Iterator[None]:
    yield
    sys.modules.pop("python_support", None)


def recorded() -> table.Table:
    records: dict[str, table.Table] = json.loads(table.RECORDS.read_text(encoding="utf-8"))
    if table.VERSION not in records:
        pytest.skip(f"the table was not made on Python {table.VERSION}")
    return records[table.VERSION]


def check(cells: list[table.Cell]) -> int:
    known = recorded()
    for cell, outcome in table.run(cells):
        assert known[cell.kind][cell.slot].split()[table.PLACES.index(cell.place)] == outcome, cell
    return len(cells)


def test_a_sample_of_the_cells() -> None:
    assert check(table.cells()[::STEP]) > 100


@pytest.mark.slow  # thousands of captures: minutes of one core
def test_all_cells_and_the_errors_of_absent_slots() -> None:
    assert check(table.cells()) > 10_000
    for _, outcome in table.run(table.cells()[::3], errors=True):
        assert outcome


def test_the_page_is_made_of_the_records() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(json.loads(table.RECORDS.read_text(encoding="utf-8")))


def test_a_difference_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table.stator, "compile", lambda program, **options: lambda *given: ("value", "other", None))
    with pytest.raises(table.Difference, match="captured"):
        table.outcome_of(table.Cell("int", "nb_add", "argument"))
