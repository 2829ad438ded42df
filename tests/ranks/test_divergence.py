"""Ranks that run different collectives: the first difference is named, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import stator
from stator import events
from stator.ranks.divergence import Call, Publication, collectives_of
from tests.own_process import ROOT

SUM = Call("all_reduce", "0", "sum", "float32[4]", "train.py", 3)
SENT = Call("broadcast", "0", "", "float32[4]", "train.py", 5)


def publication(store: dist.Store, rank: int, *calls: Call, first: int = 0) -> Publication:
    numbered = dict(enumerate(calls, first))
    made = Publication(store, 1, "0", rank, numbered, {(number, 1 - rank) for number in numbered})
    made.publish()
    return made


def test_first_difference_is_named() -> None:
    store = dist.HashStore()
    mine, theirs = publication(store, 0, SUM, SUM), publication(store, 1, SUM, SENT)
    found, back = mine.read(), theirs.read()
    assert found is not None and back is not None
    assert (found.number, found.mine, found.theirs) == (1, SUM, SENT) == (back.number, back.theirs, back.mine)
    assert "ranks 0 and 1 diverge at collective 1" in found.text() and "train.py:5" in found.text()


@pytest.mark.parametrize("line, size", [(3, "float32[4]"), (9, "float32[4]")])
def test_equal_collectives_match_whatever_their_lines(line: int, size: str) -> None:
    store = dist.HashStore()
    mine = publication(store, 0, SUM)
    publication(store, 1, SUM._replace(line=line, tensor=size))
    assert mine.read() is None and not mine.waiting


def test_a_rank_that_compiles_alone_waits_and_reports_nothing() -> None:
    store = dist.HashStore()
    publication(store, 1, SENT)
    mine = publication(store, 0, SUM, first=3)
    assert mine.read() is None and mine.waiting == {(3, 1)}


def test_sizes_that_differ_are_a_difference() -> None:
    store = dist.HashStore()
    mine = publication(store, 0, SUM)
    publication(store, 1, SUM._replace(tensor="float32[8]"))
    assert mine.read() is not None


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    stator.reset()


def test_collectives_of_a_graph(world: None) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
        dist.barrier()
        return y

    with events.record() as log:
        assert torch.equal(stator.compile(step, backend="eager")(torch.ones(4)), torch.full((4,), 2.0))
    [graph] = [event.graph.graph for event in log if isinstance(event, events.CaptureFinished)]
    first, second = collectives_of(graph)
    assert first[:4] == ("all_reduce", dist.group.WORLD.group_name, "max", "float32[4]")
    assert (second.kind, first.filename, first.line + 1) == ("barrier", __file__, second.line)


SCRIPT = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")

@torch.compile
def step(x):
    if dist.get_rank() == 2:
        dist.broadcast(x, 0)
    else:
        dist.all_reduce(x)
    return x + 1

step(torch.ones(4))
"""


def test_symmetry_of_a_fake_world(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    verdict = subprocess.run([sys.executable, "-m", "stator", "symmetry", "--ranks", "3", "--json", str(script)], cwd=ROOT,
                             capture_output=True, text=True, timeout=200)
    assert verdict.returncode == 1 and "ranks 0 and 2 of 3 diverge at their collective 0" in verdict.stderr
    assert f"all_reduce(float32[4], sum) at {script}:13" in verdict.stderr
    assert f"broadcast(float32[4]) at {script}:11" in verdict.stderr
    found = json.loads(verdict.stdout.splitlines()[-1])
    assert (found["status"], found["size"], found["ranks"], found["collectives"]) == (1, 3, [0, 2], 0)
    assert found["runs"][1] == f"broadcast(float32[4]) at {script}:11"


def test_a_rank_that_fails_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('no')")
    verdict = subprocess.run([sys.executable, "-m", "stator", "symmetry", "--ranks", "2", str(script)], cwd=ROOT,
                             capture_output=True, text=True, timeout=200)
    assert verdict.returncode == 3 and "rank 0 of 2 failed" in verdict.stderr
