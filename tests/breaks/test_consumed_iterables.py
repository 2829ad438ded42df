"""A break in what a C function runs through: each of them goes on with the next item, and equals eager."""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Any

import pytest
import torch

import stator
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0, 3.0])


def numbered(x, count, kept):
    """Pairs; one break, after the first."""
    kept.append(x + 1)
    yield "a", x + 1
    stator.graph_break()
    for at in range(1, count):
        kept.append(x * at)
        yield "abc"[at], x * at


def of_dict(x, count, kept):
    return dict(numbered(x, count, kept))


def of_dict_update(x, count, kept):
    made = {"a": x, "z": x}
    return made.update(numbered(x, count, kept)), made


def of_reduce(x, count, kept):
    return functools.reduce(lambda total, pair: total + pair[1], numbered(x, count, kept), x)


def of_reduce_without_a_start(x, count, kept):
    return functools.reduce(lambda left, right: (left[0] + right[0], left[1] * right[1]), numbered(x, count, kept))


def of_counter(x, count, kept):
    return collections.Counter(name for name, _ in numbered(x, count, kept)), x + 1


def of_min(x, count, kept):
    return min(numbered(x, count, kept), key=lambda pair: -ord(pair[0]))


def of_max_with_a_default(x, count, kept):
    return max((name for name, _ in numbered(x, count, kept)), default="none"), x + 1


def of_all(x, count, kept):
    return all(name < "c" for name, _ in numbered(x, count, kept)), x + 1


def of_any(x, count, kept):
    return any(name == "c" for name, _ in numbered(x, count, kept)), x + 1


def of_set(x, count, kept):
    return set(name for name, _ in numbered(x, count, kept)), x + 1


def of_set_update(x, count, kept):
    made = {"z"}
    return made.update(name for name, _ in numbered(x, count, kept)), made, x + 1


def of_list_extend(x, count, kept):
    made = [x]
    return made.extend(numbered(x, count, kept)), made


def of_sorted(x, count, kept):
    return sorted(numbered(x, count, kept), key=lambda pair: pair[0], reverse=True)


def of_deque(x, count, kept):
    return list(collections.deque(numbered(x, count, kept), maxlen=2))


def of_sum(x, count, kept):
    return sum((item for _, item in numbered(x, count, kept)), start=x), sum(len(name) for name, _ in numbered(x, 1, kept))


def unpacked_with_a_star(x, count, kept):
    first, *others = numbered(x, count, kept)
    return first, others


PROGRAMS = [of_dict, of_dict_update, of_reduce, of_reduce_without_a_start, of_counter, of_min, of_max_with_a_default,
            of_all, of_any, of_set, of_set_update, of_list_extend, of_sorted, of_deque, unpacked_with_a_star]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_break_in_what_is_run_through(program: Any) -> None:
    seen = compare(program, [(X, 3, []), (X + 1, 3, [])])
    assert seen.breaks == ["SB009"]
    assert len(seen.graph_modules) == 2, "before and after the break; none where C code runs through it"
    compare(program, [(X, 2, []), (X, 1, []), (X, 3, [])])


def test_two_iterables_one_after_the_other() -> None:
    compare(of_sum, [(X, 3, []), (X + 1, 2, [])])


def unpacked(x, count):
    first, second = numbered(x, count, [])
    return first, second


def wrong_pairs(x, count):
    def pairs():
        yield "a", x
        stator.graph_break()
        yield "b", x, count

    return dict(pairs())


def wrong_pairs_in_an_update(x, count):
    def pairs():
        yield "a", x
        stator.graph_break()
        yield count

    made = {"z": x}
    try:
        made.update(pairs())
    except TypeError as error:
        return str(error), made


def nothing_to_reduce(x, count):
    def none():
        stator.graph_break()
        yield from ()

    try:
        functools.reduce(lambda left, right: left, none())
    except TypeError as error:
        return str(error), min(none(), default=x)


def endless_unpacked(x, count):
    def endless():
        for at in itertools.count():
            stator.graph_break()
            yield at

    try:
        first, second = endless()
    except ValueError as error:
        return str(error), x + 1


@pytest.mark.parametrize("program", [unpacked, wrong_pairs, wrong_pairs_in_an_update, nothing_to_reduce, endless_unpacked],
                         ids=lambda program: program.__name__)
def test_what_is_wrong_is_said_as_eager_says_it(program: Any) -> None:
    compare(program, [(X, 2), (X + 1, 2), (X, 3), (X, 1)])


def chained(x, rows, kept):
    lists = [row for row in rows]
    return x + sum(itertools.chain.from_iterable(row for row in lists)), \
        list(itertools.chain.from_iterable(map(list, rows))), list(itertools.chain.from_iterable(iter(rows)))


def in_order(x, rows, kept):
    pairs = enumerate(rows)
    return x + 1, sorted(pairs), sorted(iter(rows)), max(zip(rows, rows)), list(pairs), min(reversed(rows))


@pytest.mark.parametrize("program", [chained, in_order])
def test_lists_behind_iterators_are_looked_at_one_by_one(program) -> None:
    compare(program, [(X, [[1, 2], [3]], []), (X, [[5, 2], [3, 4]], []), (X, [[2]], [])], fullgraph=True)
