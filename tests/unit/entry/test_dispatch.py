"""Many entries of one function: the right one is found by what tells them apart, and its guards still decide."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import stator
from stator.cache.dispatch import MOST_SOURCES, telling_sources
from stator.guards.guard import Guard, Kind
from stator.source import DictOf, Key, Local

X, N = Local("x", 0), Local("n", 1)


def compiled(fn: Any, limit: int = 40) -> Any:
    return stator.compile(fn, backend="eager", dynamic=False, recompile_limit=limit)


def test_the_source_with_the_most_answers_is_chosen() -> None:
    mode = Key(DictOf(X), "mode")
    lists = [[Guard(N, Kind.EQUALS, i), Guard(mode, Kind.EQUALS, i % 2), Guard(X, Kind.TYPE, int)] for i in range(8)]
    assert telling_sources(lists) == [N]
    pairs = [[Guard(N, Kind.EQUALS, i // 2), Guard(mode, Kind.EQUALS, i % 2)] for i in range(8)]
    assert telling_sources(pairs) == [N, mode]
    assert telling_sources([[Guard(N, Kind.EQUALS, 1)]] * 8) == []
    wide = [[Guard(Local(f"a{k}", k), Kind.EQUALS, i >> k & 1) for k in range(6)] for i in range(64)]
    assert len(telling_sources(wide)) == MOST_SOURCES


class Config:
    n: Any = 0


def test_entries_by_number_shape_and_attribute() -> None:
    config = Config()

    def run(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + config.n

    fn = compiled(run)
    calls = [(torch.ones(size), n, c) for size in (2, 3, 4) for n in (1, 2, 3) for c in (5, 6)]
    order = random.Random(0)
    for _ in range(4):
        order.shuffle(calls)
        for x, n, c in calls:
            config.n = c
            assert torch.equal(fn(x, n), x * n + c)
    assert len(fn.entries()) == len(calls) == sum(1 for hits in fn.hits() if hits)


def test_a_wrong_guess_is_corrected() -> None:
    """The fingerprint of a list is its length: its items decide."""

    def run(x: torch.Tensor, names: list[str]) -> torch.Tensor:
        return x + len(names[0])

    fn = compiled(run)
    x = torch.zeros(2)
    for _ in range(3):
        for size in range(1, 8):
            assert torch.equal(fn(x, ["a" * size]), x + size)
            assert torch.equal(fn(x, ["b" * size]), x + size)


@pytest.mark.parametrize("forget", ["clear", "remove"])
def test_entries_that_are_gone_are_not_guessed(forget: str) -> None:
    def run(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n

    fn = compiled(run)
    x = torch.zeros(2)
    for n in range(10):
        fn(x, n)
    for n in range(10):
        fn(x, n)
    if forget == "clear":
        fn.clear()
    else:
        for program, _, _ in fn.entries():
            assert fn.remove(program)
    assert fn.entries() == []
    for n in range(10):
        assert torch.equal(fn(x, n), x + n)
    assert len(fn.entries()) == 10


def test_a_known_call_tries_its_own_entry_first() -> None:
    def run(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n

    fn = compiled(run)
    x = torch.zeros(2)
    for _ in range(2):
        for n in range(32):
            fn(x, n)
    before = fn.entries()
    for n in range(32):
        fn(x, n)
    assert fn.entries() == before  # an entry found by trying moves to the front; one that was guessed stays
    fn.set_dispatch(None)
    fn(x, 3)
    fn(x, 4)
    assert fn.entries() != before
