"""A quick slice of the fuzzer, and every program that once differed from eager."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.compare import compare, outcomes
from tests.fuzz.grammar import generate
from tests.fuzz.prelude import PRELUDE
from tests.fuzz.shrink import shrink
from tests.portrait import differences

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
