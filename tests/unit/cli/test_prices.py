"""Prices of eager calls, and the facts of several ranks in one page."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import torch

import stator
from stator import events
from stator.cli import census
from stator.cli.eager_times import eager_times
from stator.cli.rank_files import put_beside, this_rank
from stator.cli.recorded_run import watched
from stator.report.run_data import recording, run_data

X = torch.ones(2)


def slow(x: torch.Tensor, name: str) -> torch.Tensor:
    time.sleep(0.02)
    return x + len(name)


def test_an_eager_call_is_timed_where_no_entry_is_made() -> None:
    compiled = stator.compile(slow, backend="eager", isolate_recompiles=True)
    with eager_times() as found, stator.set_stance("eager_then_compile"):
        assert compiled(X, "abc").tolist() == [4.0, 4.0]
    [(event, seconds)] = found.rows
    assert event.why == "the stance is 'eager_then_compile'" and seconds >= 0.02
    with stator.set_stance("eager_then_compile"):
        stator.compile(slow, backend="eager", isolate_recompiles=True)(X, "a")
    assert len(found.rows) == 1, "the block has ended"


def test_an_eager_call_is_timed_where_an_entry_hands_it_back() -> None:
    lock = threading.Lock()

    def locked(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return x + 1
    compiled = stator.compile(locked, backend="eager", isolate_recompiles=True)
    compiled(X)
    lock.acquire()
    threading.Timer(0.05, lock.release).start()
    with eager_times() as found:
        assert compiled(X).tolist() == [2.0, 2.0]
    [(event, seconds)] = found.rows
    assert "lock" in event.why and seconds > 0.0


def test_an_error_of_an_eager_call_leaves_it() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")
    compiled = stator.compile(fails, backend="eager", isolate_recompiles=True)
    with eager_times() as found, stator.set_stance("eager_then_compile"), pytest.raises(ValueError, match="no"):
        compiled(X)
    assert len(found.rows) == 1


def test_a_census_has_the_prices() -> None:
    def priced(x: torch.Tensor, name: str) -> torch.Tensor:
        return slow(x, name)
    compiled = stator.compile(priced, backend="eager", isolate_recompiles=True)
    with watched() as found:
        with stator.set_stance("eager_then_compile"):
            compiled(X, "a")
        compiled(X, "a"), compiled(X, "bb")
    data = found.data("here")
    [row] = [each for each in data["sites"] if each["name"] == "priced"]
    assert row["calls"] == 2 <= data["calls"][-1]["calls"] and data["eager"][0]["timed"] == 1
    text = census.text_of(census.census_of(data))
    assert "eager priced: the stance is 'eager_then_compile', 1 calls, " in text and " us each" in text
    assert "recompile priced after line" in text and " ms" in text and " was 'a', is 'bb', at" in text


def test_ranks_leave_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "MASTER_PORT": "7"}.items():
        monkeypatch.setenv(name, value)
    assert this_rank() == 1
    page = tmp_path / "run.html"
    stale = tmp_path / "run.rank2.json"
    stale.write_text(json.dumps({"run": "another", "rank": 2}))
    for rank in (1, 0):
        with recording() as run:
            for _ in range(rank):
                run.add(events.EagerFallback("f", "reason"))
        found = put_beside(page, run_data(run, "script.py"), rank, run.log)
    assert [each["rank"] for each in found["ranks"]] == [0, 1] and found["title"] == "script.py"
    assert [each["summary"]["eager"] for each in found["ranks"]] == [{}, {"f: reason": 1}]
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert this_rank() is None
