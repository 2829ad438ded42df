"""Probes: iterators and generators from outside, advanced by the program."""

from __future__ import annotations

import collections.abc
import copy
import itertools
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import one

import stator


@probe()
def outside_iterator():
    items = iter([1, 2, 3, 4, 5, 6])
    return Scene(lambda x: x * next(items), one(ramp()), lambda: next(items), lambda: items.__length_hint__())


@probe()
def outside_iterator_looped():
    holder = {"it": iter([1, 2, 3])}
    return Scene(lambda x: [x * k for k in holder["it"]], one(ramp()), lambda: holder.update(it=iter([5])),
                 lambda: holder["it"].__length_hint__())


@probe()
def outside_counter():
    counter = itertools.count()
    return Scene(lambda x: x * next(counter), one(ramp()), lambda: next(counter), lambda: repr(counter))


@probe()
def outside_generator():
    def numbers():
        for n in range(20):
            seen.append(n)
            yield n

    seen: list[int] = []
    stream = numbers()
    return Scene(lambda x: x * next(stream), one(ramp()), lambda: next(stream), lambda: list(seen))


@probe()
def outside_generator_unpacked():
    def numbers():
        yield 1
        yield 2

    streams = [numbers(), numbers(), numbers(), numbers()]
    return Scene(lambda x: (x, *streams.pop()), one(ramp()), look=lambda: len(streams))


@probe()
def outside_zip_of_one_iterator_twice():
    pairs = zip(*[iter(list(range(30)))] * 2)
    return Scene(lambda x: (x * 2, next(pairs)), one(ramp()), lambda: next(pairs))


@probe()
def outside_zip_beside_its_iterator():
    numbers = iter(list(range(40)))
    pairs = zip(numbers, range(40))
    return Scene(lambda x: (x * 2, next(pairs), next(numbers), next(pairs)), one(ramp()), lambda: next(numbers))


@probe()
def outside_enumerate_beside_its_iterator():
    numbers = iter(list(range(40)))
    numbered = enumerate(numbers)
    return Scene(lambda x: (x * 2, next(numbered), next(numbers), next(numbered)), one(ramp()), lambda: next(numbers))


@probe("SB014")
def outside_iterator_over_a_list_that_changes():
    items = list(range(5))
    stream = iter(items)

    def fn(x):
        first = next(stream)
        items.insert(0, 7)
        return x * 2, first, next(stream)

    return Scene(fn, one(ramp()), lambda: items.extend(range(9)), lambda: (items, stream.__length_hint__()))


@probe("SB014")
def outside_iterator_over_a_list_that_comes_to_change():
    items, slot = list(range(9)), [[1]]
    stream = iter(items)

    def fn(x, other):
        other.insert(0, 7)
        return x * 2, next(stream)

    return Scene(fn, lambda: (ramp(), slot[0]), lambda: slot.__setitem__(0, items), lambda: items)


@probe()
def outside_chain_over_a_generator():
    numbers = itertools.chain((n for n in range(9)), [1, 2, 3])
    return Scene(lambda x: (x * 2, next(numbers)), one(ramp()), lambda: next(numbers))


@probe()
def outside_map_with_an_effect():
    log: list[int] = []

    def noted(n):
        log.append(n)
        return n

    numbers = map(noted, range(40))
    return Scene(lambda x: (x * 2, next(numbers)), one(ramp()), lambda: next(numbers), lambda: list(log))


@probe()
def outside_zip_and_map():
    pairs = zip([1, 2, 3, 4], [5, 6, 7, 8])
    doubled = map(lambda n: n * 2, itertools.count())
    return Scene(lambda x: x * next(pairs)[1] + next(doubled), one(ramp()))


@probe()
def outside_iterator_given_to_list():
    streams = [iter("ab"), iter("cd"), iter("ef"), iter("gh")]
    return Scene(lambda x: (x * 2, list(streams[0]), "".join(streams[1]), tuple(streams[2])), one(ramp()))


def cycle_state(turns: Any) -> Any:
    """Where a cycle stands, without moving it on."""
    return list(itertools.islice(copy.copy(turns), 7))


@probe()
def outside_cycle_in_its_first_round():
    turns = itertools.cycle([1, 2, 3, 4, 5])
    return Scene(lambda x: x * next(turns) + next(turns), one(ramp()), lambda: next(turns), lambda: cycle_state(turns))


@probe()
def outside_cycle_taken_around():
    turns = itertools.cycle((1, 2, 3))

    def fn(x):
        taken = [next(turns) for _ in range(5)]
        return x * sum(taken), taken

    return Scene(fn, one(ramp()), lambda: next(turns), lambda: cycle_state(turns))


@probe()
def outside_cycle_of_tensors_and_lists():
    shared: list[int] = []
    turns = itertools.cycle([torch.ones(4), shared, torch.full((4,), 2.0)])

    def fn(x):
        found = next(turns)
        if isinstance(found, list):
            found.append(len(found))
            found = next(turns)
        return x * found

    return Scene(fn, one(ramp()), lambda: next(turns), lambda: list(shared))


@probe()
def outside_cycle_in_a_loop_that_is_left():
    turns = itertools.cycle(range(4))

    def fn(x):
        for k in turns:
            x = x + k
            if k == 2:
                break
        return x

    return Scene(fn, one(ramp()), lambda: [next(turns) for _ in range(3)], lambda: cycle_state(turns))


@probe("SB014")
def outside_cycle_beside_its_iterator():
    numbers = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])
    turns = itertools.cycle(numbers)
    return Scene(lambda x: (x * next(turns), next(numbers)), one(ramp()), lambda: next(numbers))


@probe("SB014")
def outside_cycle_inside_a_zip():
    turns = itertools.cycle([1, 2, 3])
    return Scene(lambda x: [x * k + i for i, k in zip(range(2), turns)], one(ramp()), lambda: next(turns),
                 lambda: cycle_state(turns))


@probe()
def outside_cycle_that_is_replaced():
    world = [itertools.cycle([4])]
    return Scene(lambda x: x * next(world[0]), one(ramp()), lambda: world.__setitem__(0, itertools.cycle([5, 6])),
                 lambda: cycle_state(world[0]))


@probe("SB014")
def outside_cycle_over_a_list_that_changes():
    items = [1, 2, 3, 4]
    turns = itertools.cycle(items)

    def fn(x):
        first = next(turns)
        items.insert(0, 9)
        return x * first, next(turns)

    return Scene(fn, one(ramp()), lambda: items.append(7), lambda: (items, cycle_state(turns)))


def classes_of(*iterators: Any) -> Scene:
    """Classes of an iterator, beside the items that it yields."""
    kinds = (enumerate, zip, itertools.cycle, type(iter(())), type(iter([])), type(iter(range(1))))

    def fn(x):
        return x * 2, [type(each) for each in iterators], [each.__class__ for each in iterators], \
            [isinstance(each, kind) for each in iterators for kind in kinds], \
            [isinstance(each, collections.abc.Iterator) for each in iterators], [next(each) for each in iterators]

    return Scene(fn, one(ramp()), lambda: [next(each) for each in iterators])


@probe()
def outside_iterators_and_their_classes():
    return classes_of(iter([1, 2, 3, 4, 5, 6]), iter((1, 2, 3, 4, 5, 6)), iter(range(6)), enumerate(range(6)),
                      zip(range(6), range(6)), itertools.cycle([1, 2]))


@probe("SB014")
def outside_iterators_and_their_attributes():
    several = [iter([1, 2, 3]), enumerate([1, 2, 3]), zip([1, 2, 3]), itertools.cycle([1]), iter(range(3))]
    names = ("__length_hint__", "__setstate__", "__next__", "nothing")
    return Scene(lambda x: (x * 2, [hasattr(each, name) for each in several for name in names]), one(ramp()))


@probe("SB001 SB005 SB014")
def outside_cycle_asked_by_its_method():
    turns = itertools.cycle([1, 2, 3])
    return Scene(lambda x: x * turns.__next__(), one(ramp()), lambda: next(turns), lambda: cycle_state(turns))


@probe("SB009")
def outside_cycle_around_a_break():
    turns = itertools.cycle([1, 2, 3])

    def fn(x):
        y = x * next(turns)
        stator.graph_break()
        return y + next(turns)

    return Scene(fn, one(ramp()), lambda: next(turns), lambda: cycle_state(turns))


@probe("SB001 SB005 SB014")
def bound_steps_of_outside_iterators():
    steps = [each.__next__ for each in (iter([1, 2, 3, 4, 5, 6, 7, 8]), enumerate([5, 6, 7, 8, 9]), zip(range(9), range(9)),
                                        itertools.cycle([1, 2]))]
    return Scene(lambda x: (x * 2, [step() for step in steps]), one(ramp()), lambda: [step() for step in steps])


@probe("SB014")
def outside_cycle_taken_more_often_than_is_looked_ahead():
    turns, step = itertools.cycle([1]), itertools.cycle([2]).__next__

    def fn(x):
        for _ in range(70):
            x = x + next(turns) + step()
        return x

    return Scene(fn, one(ramp()), lambda: next(turns))
