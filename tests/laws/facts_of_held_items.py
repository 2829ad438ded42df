"""Probes: iterators that hold items they have yet to yield (pairwise, tee), iterators of memoryviews, cycles over code."""

from __future__ import annotations

import array
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from probing import Scene, nothing, probe, ramp
from scenery import one

import stator


def numbers(log: list[int]) -> Iterator[int]:
    for number in range(20):
        log.append(number)
        yield number


def stepping(iterator: Any, change: Callable[[], Any] = nothing, look: Callable[[], Any] = nothing) -> Scene:
    """A call that takes two items; the change takes another."""
    return Scene(lambda x: (x + 1, next(iterator), next(iterator)), one(ramp()), change or (lambda: next(iterator)), look)


@probe()
def outside_pairwise():
    pairs = itertools.pairwise(range(12))
    return stepping(pairs, lambda: next(pairs))


@probe()
def outside_pairwise_of_tensors():
    pairs = itertools.pairwise([torch.full((4,), float(n)) for n in range(8)])

    def fn(x):
        first, second = next(pairs)
        return first + second * x

    return Scene(fn, one(ramp()), lambda: next(pairs))


@probe()
def outside_pairwise_to_its_end():
    pairs = itertools.pairwise([1, 2, 3, 4])
    return Scene(lambda x: (x + 1, [a * b for a, b in pairs], next(pairs, None)), one(ramp()))


@probe("SB014")
def outside_pairwise_over_a_list_that_changes():
    items = [1, 2, 3, 4, 5, 6, 7, 8]
    pairs = itertools.pairwise(items)

    def fn(x):
        first = next(pairs)
        items.append(5)
        items[3] += 1
        return x + 1, first, next(pairs)

    return Scene(fn, one(ramp()), lambda: items.append(3), lambda: items)


@probe("SB014")
def outside_pairwise_over_a_generator():
    log: list[int] = []
    pairs = itertools.pairwise(numbers(log))
    return stepping(pairs, lambda: next(pairs), lambda: log)


@probe("SB014")
def outside_pairwise_beside_its_iterator():
    source = iter(range(20))
    pairs = itertools.pairwise(source)
    return Scene(lambda x: (x + 1, next(pairs), next(source), next(pairs)), one(ramp()))


@probe("SB009")
def outside_pairwise_around_a_break():
    pairs = itertools.pairwise(range(6))

    def fn(x):
        for first, second in pairs:
            x = x * first + second
            stator.graph_break()
        return x

    return Scene(fn, one(ramp()))


@probe()
def pairwise_made_inside():
    def fn(x):
        pairs = itertools.pairwise([x, x + 1, x + 2, x + 3])
        first = next(pairs)
        return first, pairs, itertools.pairwise("ab")

    return Scene(fn, one(ramp()))


@probe()
def outside_tee():
    first, second = itertools.tee(range(30))
    next(first)
    return Scene(lambda x: (x * next(first) + next(second), next(second)), one(ramp()), lambda: next(second))


@probe()
def outside_tees_in_a_zip():
    first, second = itertools.tee(range(30))
    next(second)
    pairs = zip(first, second, strict=False)
    del first, second
    return stepping(pairs, lambda: next(pairs))


@probe()
def outside_tee_to_its_end():
    first, second = itertools.tee(range(5))
    next(first)
    return Scene(lambda x: (x * sum(first) + sum(second), list(first)), one(ramp()))


@probe("SB014")
def outside_tee_beside_its_iterator():
    source = iter(range(20))
    first, second = itertools.tee(source)
    return Scene(lambda x: (x * next(first) + next(source), next(second)), one(ramp()), lambda: next(second))


@probe("SB014")
def outside_tees_far_apart():
    first, second = itertools.tee(range(400))
    next(itertools.islice(first, 100, 100), None)
    return Scene(lambda x: (x * next(first) + next(second), next(second)), one(ramp()), lambda: next(second))


@probe("SB014")
def outside_tee_over_a_generator():
    log: list[int] = []
    first, second = itertools.tee(numbers(log))
    next(first)
    return Scene(lambda x: (x * next(first) + next(second), next(second)), one(ramp()), lambda: next(second), lambda: log)


@probe("SB014")
def outside_tee_over_a_generator_copied():
    log: list[int] = []
    first, second = itertools.tee(numbers(log))

    def fn(x):
        mine = copy.copy(first)
        return x * next(mine), next(mine)

    return Scene(fn, one(ramp()), lambda: next(second), lambda: log)


@probe("SB014")
def outside_tee_copied():
    first, second = itertools.tee(range(20))

    def fn(x):
        mine = copy.copy(first)
        return x * next(mine) + next(first), next(mine)

    return Scene(fn, one(ramp()), lambda: next(second))


@probe("SB014")
def outside_tee_given_to_tee():
    first, second = itertools.tee(range(20))

    def fn(x):
        mine, other = itertools.tee(first)
        return x * next(mine) + next(first), next(other), next(second), mine is first

    return Scene(fn, one(ramp()), lambda: next(second))


@probe()
def tee_made_inside():
    log: list[int] = []

    def fn(x):
        first, second, third = itertools.tee(numbers(log), 3)
        left, right = itertools.tee([1, 2, 3])
        next(left)
        return x * next(first), next(first), list(second)[1], next(third), left, right

    return Scene(fn, one(ramp()), look=lambda: log)


@probe()
def outside_iterator_of_a_memoryview():
    numbers_ = array.array("d", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    steps = iter(memoryview(numbers_)[1:])
    return stepping(steps, lambda: numbers_.__setitem__(6, 9.5), lambda: numbers_)


@probe()
def outside_iterator_of_a_memoryview_to_its_end():
    steps = iter(memoryview(b"abc"))
    return Scene(lambda x: (x + 1, next(steps, None), next(steps, None)), one(ramp()))


@probe("SB014")
def outside_iterator_of_a_memoryview_that_changes():
    memory = bytearray(b"abcdefghijkl")
    steps = iter(memoryview(memory))

    def fn(x):
        first = next(steps)
        memory[3] = 7
        return x * first, next(steps)

    return Scene(fn, one(ramp()), lambda: memory.__setitem__(5, 1), lambda: memory)


@probe("SB014")
def outside_iterator_of_a_memoryview_that_is_released():
    memory = bytearray(b"abcdefghijkl")
    view = memoryview(memory)
    steps = iter(view)

    def fn(x):
        try:
            return x * next(steps)
        except ValueError as error:
            return str(error)

    return Scene(fn, one(ramp()), view.release, lambda: memory)


@probe("SB014")
def outside_cycle_over_a_generator():
    log: list[int] = []
    turns = itertools.cycle(itertools.islice(numbers(log), 3))
    return Scene(lambda x: x * next(turns) + next(turns), one(ramp()), lambda: next(turns), lambda: log)


@probe()
def outside_cycle_over_a_generator_that_has_ended():
    turns = itertools.cycle(itertools.islice(numbers([]), 3))
    next(itertools.islice(turns, 5, 5), None)
    return Scene(lambda x: x * next(turns) + next(turns), one(ramp()), lambda: next(turns))


@probe()
def cycle_made_inside_over_a_generator():
    log: list[int] = []

    def fn(x):
        turns = itertools.cycle(x * n for n in itertools.islice(numbers(log), 3))
        return [next(turns) for _ in range(7)]

    return Scene(fn, one(ramp()), look=lambda: log)
