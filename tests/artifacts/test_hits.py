"""Hits run neither tracer nor compilers; values of one process are not stored; changes of a package give no stale hit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from tests.own_process import in_new_interpreters


def test_a_hit_loads_no_tracer(tmp_path: Path) -> None:
    rows = []
    for what in ("save", "load"):
        output, = in_new_interpreters(["-m", "tests.artifacts.light_restart", what, str(tmp_path)])
        rows.append(json.loads(output.splitlines()[-1]))
    assert rows[0] == {"saved": 1}
    assert rows[1]["events"] == ["EntryLoaded", "EntryLoaded"]
    assert rows[1]["loaded"] == []
    assert rows[1]["behind reset"] == 0
    assert rows[1]["equal"] and rows[1]["then"] == [True, True, True] and rows[1]["entries"] == 2


def test_changes_of_a_package_give_no_stale_result() -> None:
    output, = in_new_interpreters(["-m", "tests.artifacts.package_mutations", "20", "0", "light"])
    last = output.splitlines()[-1]
    assert last.endswith(" 0 problems") and "unrelated hit" in last and "source miss" in last


@pytest.mark.slow  # a thousand processes
def test_a_thousand_changes_of_a_package() -> None:
    output, = in_new_interpreters(["-m", "tests.artifacts.package_mutations", "1000"])
    assert output.splitlines()[-1].endswith(" 0 problems")


class Held:
    pass


held = Held()


def address(x: torch.Tensor) -> torch.Tensor:
    return x + id(held) % 1009


def address_hash(x: torch.Tensor) -> torch.Tensor:
    return x + hash(held) % 1009


def text_hash(x: torch.Tensor) -> torch.Tensor:
    return x + hash("text") % 1009


def shown(x: torch.Tensor) -> torch.Tensor:
    return x + len(repr(held)) if repr(held)[-3] > "7" else x


def compared(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if held is not None else x


@pytest.mark.parametrize(("fn", "why"), [(address, "id()"), (address_hash, "hash()"), (text_hash, "hash()"),
                                         (shown, "address"), (compared, None)])
def test_values_of_one_process_are_not_stored(fn: Callable[..., Any], why: str | None, tmp_path: Path) -> None:
    with stator.config.patch(artifact_key_file=str(tmp_path / "key")):
        compiled = stator.compile(fn, backend="eager")
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
        assert stator.save(compiled, str(tmp_path / "entries")) == (why is None)
        assert why is None or why in str(stator.why_not_cached(compiled))
