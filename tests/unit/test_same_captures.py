"""tools/same_captures.py: equal records, differing ones, and texts that depend on addresses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import same_captures  # noqa: E402


def line(program: str, residual: str) -> str:
    capture = {"name": "f", "graph": "", "guards": [], "residual": residual}
    return json.dumps({"program": program, "group": program, "captures": [capture], "breaks": [], "failure": ""}) + "\n"


@pytest.mark.parametrize("after, status, printed", [
    ([("fuzz:1", "return x"), ("model:m", "return y")], 0, "0 differ, 0 in one record only"),
    ([("fuzz:1", "return z"), ("model:m", "return y")], 1, "fuzz:1: capture 0, residual: 'return x' -> 'return z'"),
    ([("fuzz:1", "return x")], 1, "model:m: only in one record"),
])
def test_records_are_compared(after: list[tuple[str, str]], status: int, printed: str, tmp_path: Path, capsys: Any) -> None:
    before = [("fuzz:1", "return x"), ("model:m", "return y")]
    paths = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
    for path, programs in zip(paths, (before, after), strict=True):
        path.write_text("".join(line(*program) for program in programs))
    assert same_captures.compare(*paths) == status
    out = capsys.readouterr().out
    assert "2 programs (1 fuzz, 1 model), 2 captures" in out and printed in out


def test_programs_that_fail_alike_are_no_evidence(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text(line("fuzz:1", "return x").replace('"failure": ""', '"failure": "AttributeError: no"'))
    assert same_captures.compare(path, path) == 1
    out = capsys.readouterr().out
    assert "0 differ, 0 in one record only, 1 failed before, 1 after" in out and "fuzz:1: failed after: AttributeError: no" in out


@pytest.mark.parametrize("one, other", [
    ("set_layout(xs) == ((8, 1), (3, 2))", "set_layout(xs) == ((5, 1),\n (3, 2))"),
    ("id(x) == 140213377651888", "id(x) == 140213377651000"),
    ("getpid() == 15862", "getpid() == 31531"),
    ("list(modules) == ['sys', 'stator.heap.a', 'abc']", "list(modules) == ['sys', 'stator', 'stator.b', 'abc']"),
    ("<object at 0x7f0e1c2d3b40>", "<object at 0x7f0e1c2d0000>"),
    ("stator.heap.adopt.outside_sets.walk(xs)", "stator.heap.sets.walk(xs)"),
])
def test_texts_leave_out_addresses_and_homes(one: str, other: str) -> None:
    assert same_captures.portable(one) == same_captures.portable(other)


def test_facts_of_sets_of_objects_are_sorted() -> None:
    one = ["n == 1", "a.b is not a", "a.b is not a.c", "are_distinct(a, b, a.c)", "c is not d"]
    other = ["n == 1", "a.b is not a.c", "a.b is not a", "are_distinct(b, a.c, a)", "c is not d"]
    assert same_captures.in_order(one) == same_captures.in_order(other)
    assert same_captures.in_order(one) != same_captures.in_order([*one[1:], one[0]])


def test_other_texts_differ() -> None:
    assert same_captures.portable("len(set_of(xs)) == 3") != same_captures.portable("len(set_of(xs)) == 4")


def test_a_group_is_recorded_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    def program() -> None:
        with runs.open("a") as file:
            file.write("x")

    group = same_captures.Group("one", lambda: [("one:first", program)])
    out = tmp_path / "record.jsonl"
    for _ in range(2):
        same_captures.record([group], out, 1, 60)
    assert runs.read_text() == "x" and len(out.read_text().splitlines()) == 1
