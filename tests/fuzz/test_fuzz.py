"""A quick slice of the fuzzer, and every program that once differed from eager."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.comparison import differences
from tests.fuzz import parallel
from tests.fuzz.__main__ import same_failure
from tests.fuzz.compare import compare, outcomes
from tests.fuzz.grammar import generate
from tests.fuzz.prelude import PRELUDE
from tests.fuzz.shrink import save, shrink

HEAD = "def program(mat, vec, ivec, n, flag, items, table, point):\n"
SEEDS = range(2150, 2300)
BATCH = 10
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.py"))


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, BATCH))
def test_generated_programs_equal_eager(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    failed = {seed: found[0] for seed in range(first, first + BATCH) if (found := compare(generate(seed)))}
    assert not failed


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_past_failures_equal_eager(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression holds only `program`; the classes and inputs it uses are those of the prelude."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert compare(PRELUDE + path.read_text()) == []


def test_a_seed_gives_one_program() -> None:
    assert generate(17) == generate(17) != generate(18)


def test_the_comparison_sees_a_lost_effect() -> None:
    head = "def program(mat, vec, ivec, n, flag, items, table, point):\n"
    one = outcomes(PRELUDE + head + "    items.append(1)\n    return n\n", lambda program: program)
    other = outcomes(PRELUDE + head + "    return n\n", lambda program: program)
    assert "args[5]" in next(differences(one[0], other[0], "call 0"))


def test_the_shrinker_keeps_what_matters() -> None:
    source = "def program(x):\n    a = 1\n    if x:\n        b = 2\n        needed = 3\n    return a\n"
    assert shrink(source, lambda text: "needed" in text) == "def program(x):\n    needed = 3"


def test_an_endless_program_has_nothing_to_compare() -> None:
    head = "def program(mat, vec, ivec, n, flag, items, table, point):\n"
    assert compare(PRELUDE + head + "    for i in items:\n        items.append(i)\n        del items[0]\n") == []
    manager = "    with Slotted(8) as c:\n        for i in items:\n            items.append(i)\n            del items[0]\n    return len(items)\n"
    assert compare(PRELUDE + head + manager) == []


def test_a_run_survives_a_crash_and_a_hang(tmp_path: Path) -> None:
    """Seeds 0 to 9 in two processes: one dies, one hangs, one is wrong, one meets a bug of ours."""
    def judge(seed: int) -> list[str]:
        if seed == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if seed == 4:
            while True:
                pass
        return {5: ["call 0.line: eager 'line 1', compiled 'line 2'"], 6: ["call 0: InternalError"]}.get(seed, [])

    out = tmp_path / "failures.jsonl"
    failures = parallel.run(range(10), 2, judge, out, seconds=2.0)
    assert sorted((each.seed, each.kind) for each in failures) == [(3, "crash"), (4, "timeout"), (5, "wrong"), (6, "internal")]
    *written, summary = (json.loads(line) for line in out.read_text().splitlines())
    assert len(written) == 4
    assert (summary["programs"], summary["seeds"]) == (10, "0:10")


def test_a_fault_becomes_a_small_regression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that loses what becomes of a list: its failure is found, made small, saved, and fails while it is there."""
    text = PRELUDE + HEAD + """\
    total = 0
    for i in range(3):
        if flag:
            total += n
        else:
            items.append(i)
        print(total)
    try:
        table["q"] = total
    finally:
        point.x = total
    return total, vec + 1
"""
    def losing(program: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: program(*(list(arg) if type(arg) is list else arg for arg in args))

    assert compare(text) == []
    with monkeypatch.context() as fault:
        fault.setattr("tests.fuzz.compare.compiled", losing)
        found = compare(text)
        assert "args[5]" in found[0]
        small = shrink(text, same_failure(found[0]))
        path = save(small, tmp_path, "a_lost_item")
        assert len(path.read_text().splitlines()) <= 5
        assert "items.append" in path.read_text()
        assert compare(PRELUDE + path.read_text())
    assert compare(PRELUDE + path.read_text()) == []


def test_programs_weighted_to_the_library_are_made_of_it() -> None:
    texts = [generate(seed, "library") for seed in range(40)]
    assert texts[3] == generate(3, "library") != generate(3)
    assert sum("pickle." in text.partition("def program")[2] for text in texts) > 5


@pytest.mark.parametrize("first", [50_000])
def test_programs_weighted_to_the_library_equal_eager(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    assert not {seed: found[0] for seed in range(first, first + 5) if (found := compare(generate(seed, "library")))}
