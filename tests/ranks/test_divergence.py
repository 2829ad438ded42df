"""Ranks that run different collectives: the first difference is named, and nothing else is."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import stator
from stator import events
from stator.ranks.branches import branch_between
from stator.ranks.divergence import Snapshot, compare, explained_by_messages
from stator.ranks.launches import Call, Facts, Launch, collectives_of
from stator.ranks.stalls import Stall
from tests.own_process import forked_interpreters, in_forked_interpreters
from tests.ranks import divergence_table
from tests.ranks.divergence_scenarios import Scenario

SUM = Call("all_reduce", "0", "sum", "float32[4]", "train.py", 3)
SENT = Call("broadcast", "0", "", "float32[4]", "train.py", 5, "root 0")


def rank(*calls: Call | None, first: int = 0, begun: int | None = None, guards: dict[str, str] | None = None,
         stall: Stall | None = None, numbers: dict[str, int] | None = None) -> Snapshot:
    """A rank that has launched one graph, as another one reads it."""
    facts = Facts({"0": list(calls)}, guards or {}, zlib.crc32(repr(calls).encode()))
    launch = Launch(1, facts, [first], None if begun is None else [first + begun])
    made = Snapshot([launch], numbers or {"0": first + len(calls)}, stall)
    return Snapshot.of(made.data(), lambda number: Facts.of(facts.data()))


def test_first_difference_is_named() -> None:
    mine, theirs = rank(SUM, SUM), rank(SUM, SENT)
    found, back = compare(mine, theirs, 0, 1), compare(theirs, mine, 1, 0)
    assert found is not None and back is not None
    assert (found.number, found.mine, found.theirs) == (1, SUM, SENT) == (back.number, back.theirs, back.mine)
    assert "ranks 0 and 1 diverge at collective 1" in found.text() and "train.py:5" in found.text()


@pytest.mark.parametrize("theirs", [
    rank(SUM), rank(SUM._replace(line=9)), rank(SUM._replace(tensor="float32[?]")), rank(SENT, first=3),
    rank(SUM, SENT, begun=1), rank(SUM._replace(reduction="?", tensor="?", root="?")),
])
def test_ranks_that_match(theirs: Snapshot) -> None:
    assert compare(rank(SUM), theirs, 0, 1) is None and compare(theirs, rank(SUM), 1, 0) is None


def rank_of_launches(*launches: tuple[Call, int], stall: Stall | None = None) -> Snapshot:
    """A rank that has completed launches of one collective each, with these numbers."""
    made = [Launch(at, Facts({"0": [call]}, {}, zlib.crc32(repr(call).encode())), [at], [at + 1]) for call, at in launches]
    return Snapshot(made, {"0": made[-1].first[0] + 1}, stall)


def agree(mine: Snapshot, theirs: Snapshot) -> bool:
    return compare(mine, theirs, 0, 1) is None


@pytest.mark.parametrize(("mine", "theirs", "benign"), [
    ([(SUM, 0), (SENT, 2), (SUM, 3)], [(SUM, 0), (SENT, 1), (SUM, 2)], True),  # a message of the first rank
    ([(SUM, 0), (SENT, 2)], [(SUM, 0), (SENT, 1), (SUM, 2), (SENT, 3)], True),  # it is late, too
    ([(SUM, 0), (SENT, 1), (SUM, 2)], [(SUM, 0), (SUM, 1)], False),  # a broadcast that the other one never runs
    ([(SUM, 0), (SUM, 1), (SENT, 2)], [(SUM, 0), (SUM, 1), (SUM, 2)], False),
])
def test_numbers_shifted_by_messages(mine: list[tuple[Call, int]], theirs: list[tuple[Call, int]], benign: bool) -> None:
    one, two = rank_of_launches(*mine), rank_of_launches(*theirs)
    assert not agree(one, two)
    assert explained_by_messages(one, two, "0", agree) is explained_by_messages(two, one, "0", agree) is benign


@pytest.mark.parametrize(("theirs", "remedy"), [
    (SUM._replace(tensor="float32[8]"), "one size"), (SUM._replace(tensor="float64[4]"), "one dtype"),
    (SUM._replace(reduction="max"), "the same reduction"), (SENT, "values that all ranks share"),
])
def test_differences_and_their_remedies(theirs: Call, remedy: str) -> None:
    found = compare(rank(SUM), rank(theirs), 0, 1)
    assert found is not None and remedy in found.remedy


def test_the_guard_that_differs() -> None:
    found = compare(rank(SUM, guards={"x": "x is True", "n": "n == 2"}),
                    rank(SENT, guards={"x": "x is True", "n": "n == 3"}), 0, 1)
    assert found is not None and found.guard == "n == 2 on rank 0, n == 3 on rank 1"


def test_messages_between_two_ranks_take_numbers_where_the_backend_counts_them() -> None:
    counted = rank(None, SUM, begun=2)
    assert compare(counted, rank(SENT, first=1), 0, 1) is not None and compare(counted, rank(SENT), 0, 1) is None
    assert compare(rank(None, SUM, begun=1), rank(SENT), 0, 1) is not None


def test_an_exception_between_collectives() -> None:
    """The second collective of one rank meets the first one of the next call of another."""
    later = SUM._replace(line=8)
    whole, again = rank(SUM, later, begun=2), rank(SUM, later, first=1)
    left = rank(SUM, later, begun=1)
    found = compare(whole, Snapshot(left.launches + again.launches, {"0": 2}), 0, 1)
    assert found is not None and found.number == 1 and "an exception left a call before" in found.remedy
    assert compare(whole, Snapshot(again.launches, {"0": 2}), 0, 1) is None  # two lines of one collective


@pytest.mark.parametrize(("one", "two", "waits"), [
    (("recv", 1), ("recv", 0), True), (("recv", 1), ("send", 0), False), (("recv", 1), ("recv", 2), False),
])
def test_ranks_that_wait_for_one_another(one: tuple[str, int], two: tuple[str, int], waits: bool) -> None:
    stalls = [Stall(SUM._replace(kind=kind), -1, peer) for kind, peer in (one, two)]
    found = compare(rank(stall=stalls[0]), rank(stall=stalls[1]), 0, 1)
    assert (found is not None) == waits


SOURCE = """def step(x, rank):
    for n in range(2):
        if rank == 0:
            first(x)
        else:
            second(x)
    third(x)

def left(x):
    if x:
        return x
    fourth(x)
"""


@pytest.mark.parametrize(("mine", "theirs", "line"), [
    ((4,), (6,), 3), ((4,), (7,), 2), ((6,), (7,), 2), ((7,), (7,), None), ((7, 4), (7,), 2), ((12,), (7,), 10),
])
def test_the_branch_between_two_lines(tmp_path: Path, mine: tuple[int, ...], theirs: tuple[int, ...],
                                      line: int | None) -> None:
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    stacks = [[(str(path), each) for each in lines] for lines in (mine, theirs)]
    found, back = branch_between(*stacks), branch_between(*reversed(stacks))
    assert found == back and (None if found is None else found.line) == line


def test_scenarios_on_two_processes() -> None:
    """A part of `python -m tests.ranks.divergence_table`; how long reports take depends on the machine."""
    [output] = in_forked_interpreters(["tests.ranks.divergence_table", "--quick", "--json"])
    rows = json.loads(output.splitlines()[-1])
    assert len(rows) == 6 and not [(name, row["texts"]) for name, row in rows.items() if not row["right"]]


def abort_on_one_rank(rank: int) -> None:
    if rank:
        faulthandler.disable()  # pytest's
        os.abort()
    dist.barrier()


def keep_the_lock_on_one_rank(rank: int) -> None:
    """As C code does that waits and does not release the interpreter's lock."""
    if rank == 0:
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    dist.barrier()


def stop_both_ranks(rank: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(("body", "errors"), [
    (abort_on_one_rank, ["", "rank 1 ended by SIGABRT"]),
    (keep_the_lock_on_one_rank, ["rank 0 was killed, for it did not end", "it hangs, and nothing is reported"]),
    (stop_both_ranks, ["rank 0 was killed, for it did not end", "rank 1 was killed, for it did not end"]),
])
def test_a_scenario_ends_whatever_its_ranks_do(body: Callable[[int], None], errors: list[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence_table, "GRACE", 1.0)
    results = divergence_table.run(Scenario(body.__name__, body), seconds=2.0)
    assert all(error in each["error"] for each, error in zip(results, errors, strict=True)), results
    assert all(body.__name__ in each["threads"] for each in results if "killed" in each["error"] and body is not stop_both_ranks)


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
    verdict, = forked_interpreters(["stator", "symmetry", "--ranks", "3", "--json", str(script)])
    assert verdict.returncode == 1 and "ranks 0 and 2 of 3 diverge at their collective 0" in verdict.stderr
    assert f"all_reduce(float32[4], sum) at {script}:13" in verdict.stderr
    assert f"broadcast(float32[4], root 0) at {script}:11" in verdict.stderr
    found = json.loads(verdict.stdout.splitlines()[-1])
    assert (found["status"], found["size"], found["ranks"], found["collectives"]) == (1, 3, [0, 2], 0)
    assert found["runs"][1] == f"broadcast(float32[4], root 0) at {script}:11"


def test_a_rank_that_fails_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('no')")
    verdict, = forked_interpreters(["stator", "symmetry", "--ranks", "2", str(script)])
    assert verdict.returncode == 3 and "rank 0 of 2 failed" in verdict.stderr
