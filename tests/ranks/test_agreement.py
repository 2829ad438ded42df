"""Ranks with different sizes capture the same graph; a rank that does not come is named, and nobody hangs."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import stator
from stator import events
from stator.capture.rank_agreement import Exchange, RankMissing, RanksAgreed, RanksDiffer, differing, facts_of
from stator.errors import RankAgreementTimeout, RanksDisagree
from tests.own_process import in_forked_interpreters

MODULE = "tests.ranks.test_agreement"


def test_facts_of_arguments() -> None:
    given = (torch.ones(2, 3), 4, True, [torch.ones(5)], {"mask": (6, "a")}, object())
    assert facts_of(list("abcdef"), given) == {"a": [2, 3], "b": 4, "d[0]": [5], "e['mask'][0]": 6}


@pytest.mark.parametrize(("facts", "sizes", "numbers"), [
    ([{"x": [3, 4]}, {"x": [5, 4]}], {"x": [0]}, []),
    ([{"x": [3, 4]}, {"x": [3, 4]}], {}, []),
    ([{"x": [3]}, {"x": [3, 1]}], {}, []),
    ([{"n": 1}, {"n": 2}], {}, ["n"]),
    ([{"n": 1}, {"n": [1]}, {}], {}, []),
])
def test_differences(facts: list[Any], sizes: object, numbers: object) -> None:
    assert differing(facts) == {"sizes": sizes, "numbers": numbers}


def test_an_exchange_gives_everybody_the_same() -> None:
    store, found = dist.HashStore(), {}

    def compare(rank: int) -> None:
        exchange = Exchange(store, rank, 3)
        found[rank] = [exchange.compare("f", {"x": [rank + turn]}, 30.0) for turn in range(2)]

    threads = [threading.Thread(target=compare, args=(rank,)) for rank in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for results in found.values():
        for turn, (everybody, missing) in enumerate(results):
            assert missing == () and sorted(facts["x"] for facts in everybody) == [[turn], [turn + 1], [turn + 2]]


def test_a_rank_that_does_not_come() -> None:
    exchange = Exchange(dist.HashStore(), 0, 2)
    everybody, missing = exchange.compare("f", {"x": [1]}, 0.05)
    assert (everybody, missing) == ([{"x": [1]}], (1,))


def test_the_log_is_read_once() -> None:
    store = dist.HashStore()
    one, other = Exchange(store, 0, 2), Exchange(store, 1, 2)
    one.publish("a")
    one.publish("b")
    assert list(other.learned()) == ["a", "b"] and list(other.learned()) == []


# ---------------------------------------------------------------------- two processes


def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
    y = x * n
    dist.all_reduce(y := y.sum())
    return y


def alone(x: torch.Tensor) -> torch.Tensor:
    return x + x.size(0)


def breaks_on_one(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    if dist.get_rank() == 1:
        stator.graph_break()
    return x * 2


def breaks_on_all(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    stator.graph_break()
    return x * 2


def captures_of(fn: Any, *args: Any) -> tuple[Any, int]:
    with events.record() as log:
        result = fn(*args)
    return result.tolist(), sum(isinstance(event, events.CaptureStarted) for event in log)


def differences(fn: Any, options: dict[str, Any]) -> list[str]:
    """Events and errors of a function whose captures end on all ranks before the next one begins."""
    with events.record() as log:
        try:
            assert stator.compile(fn, backend="eager", options=options)(torch.ones(2)).tolist() == [4.0, 4.0]
            dist.barrier()
            stator.compile(lambda x: x - 3, backend="eager")(torch.ones(3))  # a miss
        except RanksDisagree as error:
            dist.barrier()
            return [str(error)]
    return [event.text() for event in log if isinstance(event, RanksDiffer)]


def on_a_rank(rank: int, folder: str) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found: dict[str, Any] = {}
    with stator.config.patch(enable_compiler_collectives="--off" not in sys.argv, compiler_collectives_seconds=60):
        compiled = stator.compile(scaled, backend="eager")
        with events.record() as log:
            found["uneven"] = [captures_of(compiled, torch.ones(3 + rank), 2 + rank)]
        found["agreed"] = [event.varying for event in log if isinstance(event, RanksAgreed)]
        found["uneven"] += [captures_of(compiled, torch.ones(7 + rank), 5)]
        later = stator.compile(alone, backend="eager")
        found["later"] = [captures_of(later, torch.ones(4))]
        if rank == 0:  # learns alone that the size varies
            found["later"] += [captures_of(later, torch.ones(5)), captures_of(later, torch.ones(6))]
        dist.barrier()
        if rank == 1:  # adopts it at its next miss
            found["later"] += [captures_of(later, torch.ones(n, dtype=torch.double)) for n in (4, 9)]
        found["differ"] = differences(breaks_on_one, {})
        found["strict differ"] = differences(breaks_on_one, {"strict": True})
        found["alike"] = differences(breaks_on_all, {"strict": True})
    if rank == 0:
        with stator.config.patch(enable_compiler_collectives=True, compiler_collectives_seconds=1):
            with events.record() as log:
                found["missing"] = captures_of(stator.compile(lambda x: x - 1, backend="eager"), torch.ones(2))
            found["named"] = [event.missing for event in log if isinstance(event, RankMissing)]
            try:
                stator.compile(lambda x: x - 2, backend="eager", options={"strict": True})(torch.ones(2))
            except RankAgreementTimeout as error:
                found["strict"] = str(error)
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_two_processes(tmp_path: Path) -> None:
    outputs = in_forked_interpreters(*([MODULE, str(rank), str(tmp_path)] for rank in range(2)))
    first, second = (json.loads(output.splitlines()[-1]) for output in outputs)
    for rank in (first, second):
        assert rank["agreed"] == [["x", "n"]]
        assert rank["uneven"] == [[18.0, 1], [75.0, 0]]  # 3 * 2 + 4 * 3; then 7 * 5 + 8 * 5 by the same entry
    assert first["later"] == [[[5.0] * 4, 1], [[6.0] * 5, 1], [[7.0] * 6, 0]]
    assert second["later"] == [[[5.0] * 4, 1], [[5.0] * 4, 1], [[10.0] * 9, 0]]
    assert [len(rank["differ"]) for rank in (first, second)] == [1, 1]
    assert "rank 0: no break; rank 1: breaks: SB009 at test_agreement.py" in first["differ"][0]
    assert "rank 1: breaks: SB009" in second["strict differ"][0] and len(first["strict differ"]) == 1
    assert first["alike"] == second["alike"] == []
    assert first["missing"] == [[0.0, 0.0], 1] and first["named"] == [[1]]
    assert "rank 1 did not come there within 1 s" in first["strict"]


if __name__ == "__main__":
    print(json.dumps(on_a_rank(int(sys.argv[1]), sys.argv[2])))
