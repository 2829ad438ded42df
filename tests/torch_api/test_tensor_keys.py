"""Tensors as keys of dicts and members of sets: which of them are one object counts, not which objects they are."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from torch_api.side_by_side import World, compare

T = torch.Tensor


def literal(a: T, b: T, c: T) -> Any:
    table = {a: 1, b: 2, c: 3}
    return a + len(table), list(table.values()), table


def looked_up(a: T, b: T, c: T) -> Any:
    table = {a: 1}
    return a + 1, table.get(b, 7), table.setdefault(c, 5), table.pop(b, None), len(table)


def stored(a: T, b: T, c: T) -> Any:
    table: dict[T, int] = {}
    table[a], table[b], table[c] = 1, 2, 3
    del table[a]
    return b + 1, list(table.values())


def missed(a: T, b: T, c: T) -> Any:
    try:
        return {a: 1}[b], a + 1
    except KeyError:
        return a + 2


def gathered(a: T, b: T, c: T) -> Any:
    found = set()
    found.add(a)
    found.add(b)
    found.discard(c)
    return a + len(found), a in found, b in found, c in found


def algebra(a: T, b: T, c: T) -> Any:
    s, t = {a, b}, {b, c}
    return (a + len(s | t), len(s & t), len(s - t), s <= t, s == t, s.isdisjoint({c}), len(s ^ t),
            frozenset((a, b)) == frozenset((b, c)))


def displays(a: T, b: T, c: T) -> Any:
    return (a + 1, len({t: i for i, t in enumerate((a, b, c))}), len({t for t in (a, b, c)}), len(dict.fromkeys([a, b, c])),
            len(dict([(a, 1), (b, 2)])), len({**{a: 1}, **{c: 2}}), len({a: 1} | {b: 2}))


def within_tuples(a: T, b: T, c: T) -> Any:
    table = {(a, 1): 1, (b, 1): 2}
    return a + 1, len(table), (c, 1) in table, table.get((b, 1))


def views(a: T, b: T, c: T) -> Any:
    table = {a: 1, b: 2}
    return a + 1, c in table.keys(), len(table.keys() & {c}), (c, 1) in table.items()


def counted(a: T, b: T, c: T) -> Any:
    order = collections.OrderedDict([(a, 1)])
    order[b] = 2
    table: Any = collections.defaultdict(int)
    table[a] += 1
    table[c] += 1
    return a + 1, sorted(collections.Counter([a, b, c]).values()), len(order), len(table)


def with_new_ones(a: T, b: T, c: T) -> Any:
    made = a * 2
    table = {made: 1, a: 2}
    table[b] = 3
    return made + 1, table[made], made in table, len(table)


PROGRAMS: list[Callable[..., Any]] = [literal, looked_up, stored, missed, gathered, algebra, displays, within_tuples,
                                      views, counted, with_new_ones]
PATTERNS = [(0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 0, 1), (0, 1, 1), (0, 1, 0), (0, 0, 0), (0, 1, 2), (0, 0, 1)]


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")


def arguments(step: int) -> tuple[T, ...]:
    made = [torch.full((2,), float(step + i)) for i in range(3)]
    return tuple(made[i] for i in PATTERNS[step])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_new_tensors_are_no_news(program: Callable[..., Any], backend: str) -> None:
    """Captured once for tensors that differ, and once for each way in which they are one another."""
    seen = compare(lambda: World(program, arguments), calls=len(PATTERNS), backend=backend)
    assert not seen.breaks, seen.causes
    assert seen.captures[:3] == [1, 0, 0] and seen.captures[7:] == [0, 0], seen.captures


def test_the_number_itself_is_a_fact() -> None:
    """hash(x) shows where a tensor lies; that is another number for another tensor."""
    def program(a: T, b: T, c: T) -> Any:
        made = a * 2
        return a + 1, hash(a) == hash(b), a.__hash__() == c.__hash__(), hash(a) == id(a), hash(made) == id(made)

    compare(lambda: World(program, arguments), calls=5)


def test_the_number_of_a_tensor_made_inside_is_that_of_the_tensor_which_leaves() -> None:
    def program(a: T) -> Any:
        made = a * 2
        return made, hash(made), made.__hash__(), id(made)

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        made, *numbers = compiled(torch.ones(2))
        assert set(numbers) == {hash(made)}


def test_the_order_of_a_set_breaks() -> None:
    def program(a: T, b: T, c: T) -> Any:
        return sum(t.sum() for t in {a, b})

    seen = compare(lambda: World(program, arguments), calls=3, tolerance=1e-6)
    assert set(seen.breaks) == {"SB013"}


def test_parameters_are_told_apart_by_which_they_are() -> None:
    """A group of parameters is looked up at every step: one guard for each, not one for each pair."""
    def make() -> World:
        module = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(20)))
        known = {p: i for i, p in enumerate(module.parameters())}

        def program(x: T) -> Any:
            seen = set()
            total = 0
            for p in module.parameters():
                if p in seen:
                    continue
                seen.add(p)
                total += known[p]
            return x + total, len(seen)

        def prepared(step: int) -> tuple[T]:
            if step == 3:
                module[1].weight = module[0].weight
            return (torch.ones(2) * step,)
        return World(program, prepared)

    seen = compare(make, calls=4)
    assert not seen.breaks and seen.captures == [1, 0, 0, 1], seen.captures
