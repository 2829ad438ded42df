"""A second process uses what the first one has captured: nothing is traced or compiled, and results equal eager."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.artifacts.programs import COMPILED, PROGRAMS
from tests.own_process import in_forked_interpreters

MODULE = "tests.artifacts.restart"
BACKENDS = ("aot_eager", "eager")  # in this order: sizes that change once are symbolic from then on


def rows_of(*command: str) -> dict[tuple[str, str], dict[str, Any]]:
    output, = in_forked_interpreters([MODULE, *command])
    rows = [json.loads(line) for line in output.splitlines() if line.startswith('{"name"')]
    return {(row["name"], row["backend"]): row for row in rows}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("entries")
    return folder, rows_of("save", str(folder), *BACKENDS)


@pytest.fixture(scope="module")
def loaded(saved: tuple[Path, dict[Any, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return rows_of("load", str(saved[0]), *BACKENDS)


CASES = [*[(name, "eager") for name in PROGRAMS], *[(name, "aot_eager") for name in COMPILED]]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_every_entry_is_stored(saved: tuple[Path, dict[Any, Any]], name: str, backend: str) -> None:
    row = saved[1][name, backend]
    assert row["left out"] == [] and row["entries"] > 0


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_nothing_is_captured_again(loaded: dict[Any, Any], name: str, backend: str) -> None:
    row = loaded[name, backend]
    assert row["differences"] == []
    assert (row["captures"], row["compilations"], row["why"]) == (0, 0, None)
    assert row["loaded"] > 0


def test_a_corrupted_side_is_found(saved: tuple[Path, dict[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison in the second process can fail."""
    monkeypatch.setenv("STATOR_TEST_FAULT", "value")
    rows = rows_of("load", str(saved[0]), "eager:plain")
    assert rows["plain", "eager"]["differences"]


@pytest.mark.slow  # compiles kernels with a C++ compiler
def test_inductor(tmp_path: Path) -> None:
    names = [name for name in COMPILED if name != "random"]  # Inductor has random numbers of its own
    command = f"inductor:{':'.join(names)}"
    assert all(row["left out"] == [] for row in rows_of("save", str(tmp_path), command).values())
    for row in rows_of("load", str(tmp_path), command).values():
        assert (row["differences"], row["captures"], row["compilations"]) == ([], 0, 0)


# ---------------------------------------------------------------------- in one process


@pytest.fixture
def path(tmp_path: Path) -> str:
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        yield str(tmp_path / "entries")


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_an_object_without_a_name(path: str) -> None:
    """The first fact without a portable form is named, with the line that used it."""
    token = object()
    held = {"token": token}

    def program(x: torch.Tensor, given: object) -> torch.Tensor:
        return x + 1 if given is held["token"] else x

    compiled = stator.compile(program, backend="eager")
    compiled(torch.ones(2), token)
    with events.record() as log:
        stator.save(compiled, path)
    why = stator.why_not_cached(compiled)
    found = [event for event in log if isinstance(event, events.NotCached)]
    assert (why is None) == (not found)  # the closure leads to the object, in any process
    loaded = stator.load(path, program, backend="eager")
    assert torch.equal(loaded(torch.ones(2), object()), torch.ones(2))
    assert torch.equal(loaded(torch.ones(2), token), torch.ones(2) + 1)


def test_other_settings_miss(path: str) -> None:
    compiled = stator.compile(doubled, backend="eager")
    compiled(torch.ones(2))
    assert stator.save(compiled, path) == 1
    with events.record() as log:
        loaded = stator.load(path, doubled, backend="eager", dynamic=True)
        loaded(torch.ones(2))
    assert [event.why for event in log if isinstance(event, events.NotCached)] == ["dynamic is True, and was None"]
    assert stator.why_not_cached(loaded) == "dynamic is True, and was None"
    assert any(isinstance(event, events.CaptureStarted) for event in log)


def test_a_file_that_does_not_exist(path: str) -> None:
    with events.record() as log:
        loaded = stator.load(path, doubled, backend="eager")
        assert torch.equal(loaded(torch.ones(2)), torch.full((2,), 2.0))
    assert any(isinstance(event, events.ArtifactRefused) for event in log)


def test_loaded_entries_are_saved_again(path: str) -> None:
    compiled = stator.compile(doubled, backend="eager")
    compiled(torch.ones(2))
    stator.save(compiled, path)
    loaded = stator.load(path, doubled, backend="eager")
    loaded(torch.ones(2))
    assert stator.save(loaded, path) == 1
    with events.record() as log:
        assert torch.equal(stator.load(path, doubled, backend="eager")(torch.ones(2)), torch.full((2,), 2.0))
    assert not any(isinstance(event, events.CaptureStarted) for event in log)


def test_the_store_is_used(tmp_path: Path) -> None:
    with stator.config.patch(artifact_key_file=str(tmp_path / "key"), artifact_dir=str(tmp_path / "store")):
        stator.compile(doubled, backend="eager")(torch.ones(2))
        stator.reset()
        with events.record() as log:
            again = stator.compile(doubled, backend="eager", isolate_recompiles=True)
            assert torch.equal(again(torch.ones(2)), torch.full((2,), 2.0))
            assert torch.equal(again(torch.ones(2, dtype=torch.float64)), torch.full((2,), 2.0, dtype=torch.float64))
    kinds = [type(event).__name__ for event in log]
    assert kinds.count("EntryLoaded") == 1 and kinds.count("CaptureStarted") == 1
