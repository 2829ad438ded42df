"""Probes: C iterators from outside that draw from generators, functions and containers, advanced by the program."""

from __future__ import annotations

import array
import collections
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from probing import Scene, probe, ramp
from scenery import one

import stator


def noted(log: list[Any], count: int = 30) -> Any:
    """A generator whose body is seen."""
    try:
        for number in range(count):
            log.append(number)
            yield number
    finally:
        log.append("closed")


def stepped(make: Callable[[list[Any]], Any]) -> Scene:
    """Two steps of an iterator at each call, from its middle to behind its end."""
    log: list[Any] = []
    iterator = make(log)
    return Scene(lambda x: (x + 1, next(iterator, None), next(iterator, None)), one(ramp()),
                 lambda: next(iterator, None), lambda: list(log))


class Numbers:
    """An iterator written in Python."""

    def __init__(self) -> None:
        self.n = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.n += 1
        if self.n > 9:
            raise StopIteration
        return self.n


class ByIndex:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __getitem__(self, index: int) -> int:
        self.log.append(index)
        if index > 4:
            raise IndexError(index)
        return index * 2


MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "map_over_a_generator": lambda log: map(lambda k: k * 10, noted(log, 5)),
    "map_of_a_class": lambda log: map(str, noted(log, 5)),
    "map_of_a_bound_method": lambda log: map(log.append, range(20)),
    "map_over_two": lambda log: map(lambda a, b: (a, b), noted(log), Numbers()),
    "filter_over_a_generator": lambda log: filter(lambda k: k % 2, noted(log)),
    "zip_over_generators": lambda log: zip(noted(log, 3), noted(log, 9)),
    "strict_zip": lambda log: zip(noted(log, 3), noted(log, 3), strict=True),
    "enumerate_over_a_generator": lambda log: enumerate(noted(log, 5), 7),
    "enumerate_over_a_map": lambda log: enumerate(map(lambda k: k + 2, range(30))),
    "enumerate_over_an_object": lambda log: enumerate(Numbers()),
    "islice_over_a_generator": lambda log: itertools.islice(noted(log), 5),
    "islice_with_steps": lambda log: itertools.islice(noted(log), 1, 12, 3),
    "islice_over_a_list": lambda log: itertools.islice(list(range(30)), 2, 9, 2),
    "chain_of_several": lambda log: itertools.chain(noted(log, 2), [7], noted(log, 1), "a"),
    "takewhile": lambda log: itertools.takewhile(lambda k: log.append("asked") or k < 3, noted(log, 9)),
    "dropwhile": lambda log: itertools.dropwhile(lambda k: log.append("asked") or k < 3, noted(log, 7)),
    "accumulate": lambda log: itertools.accumulate(noted(log, 5), lambda a, b: log.append((a, b)) or a + b),
    "accumulated_tensors": lambda log: itertools.accumulate([torch.ones(2)] * 9),
    "starmap_of_a_builtin": lambda log: itertools.starmap(pow, zip(noted(log), range(20))),
    "compress": lambda log: itertools.compress(noted(log), [1, 0, 1, 1, 0, 1]),
    "zip_longest": lambda log: itertools.zip_longest(noted(log, 3), noted(log, 5), fillvalue="none"),
    "filterfalse": lambda log: itertools.filterfalse(lambda k: k % 3, noted(log)),
    "calls_until": lambda log: iter(collections.deque(range(6)).popleft, 3),
    "indexing_until": lambda log: iter(ByIndex(log)),
    "set_iterator": lambda log: iter({1, 2, 3, 4, 5}),
    "frozenset_iterator": lambda log: iter(frozenset("abcde")),
    "deque_iterator": lambda log: iter(collections.deque([1, 2, 3, 4, 5])),
    "deque_backwards": lambda log: reversed(collections.deque([1, 2, 3, 4, 5])),
    "ordered_dict_iterator": lambda log: iter(collections.OrderedDict((k, 1) for k in range(5))),
    "ordered_dict_items": lambda log: iter(collections.OrderedDict((k, 1) for k in range(5)).items()),
    "default_dict_iterator": lambda log: iter(collections.defaultdict(int, {k: 1 for k in range(5)})),
    "counter_items": lambda log: iter(collections.Counter("abcab").items()),
    "array_iterator": lambda log: iter(array.array("i", range(5))),
    "numpy_iterator": lambda log: map(int, iter(np.arange(5))),
    "product": lambda log: itertools.product([1, 2], "ab"),
    "permutations": lambda log: itertools.permutations([1, 2, 3]),
    "combinations": lambda log: itertools.combinations(range(4), 2),
    "combinations_with_replacement": lambda log: itertools.combinations_with_replacement(range(3), 2),
    "several_layers": lambda log: zip(map(str, itertools.chain(range(3), noted(log, 9))), itertools.count()),
}


def _stepped_probe(name: str, make: Callable[[list[Any]], Any]) -> None:
    def scene() -> Scene:
        return stepped(make)

    scene.__name__ = f"outside_{name}"
    probe()(scene)


for _name, _make in MAKERS.items():
    _stepped_probe(_name, _make)


@probe("SB014")
def outside_chain_of_a_generator_of_lists():
    return stepped(lambda log: itertools.chain.from_iterable([k, k] for k in noted(log, 9)))


@probe()
def outside_map_beside_its_generator():
    log: list[Any] = []
    numbers = noted(log)
    doubled = map(lambda k: k * 2, numbers)
    return Scene(lambda x: (x + 1, next(numbers), next(doubled), next(numbers), next(doubled)), one(ramp()),
                 lambda: next(numbers), lambda: list(log))


@probe()
def outside_generators_inside_inner_pipelines():
    log: list[Any] = []
    first, second = noted(log), noted(log)

    def fn(x):
        return x + 1, list(itertools.islice(first, 2)), [a + b for a, b, _ in zip(first, second, range(2))], next(first)

    return Scene(fn, one(ramp()), lambda: next(first), lambda: list(log))


@probe()
def outside_generators_that_a_generator_hands_to_a_chain():
    """C code is handed generators of the user by Python code: it must not advance those themselves."""
    log: list[Any] = []
    several = [noted(log, 2) for _ in range(16)]

    def fn(x):
        chained = itertools.chain.from_iterable(several.pop() for _ in range(3))
        mapped = itertools.chain.from_iterable(map(lambda _: several.pop(), range(1)))
        return x + 1, list(itertools.islice(chained, 5)), next(mapped)

    return Scene(fn, one(ramp()), several.pop, lambda: (list(log), len(several)))


@probe()
def outside_chain_of_a_list_of_generators():
    log: list[Any] = []
    several = [noted(log, 3) for _ in range(9)]
    numbers = itertools.chain.from_iterable(several)
    return Scene(lambda x: (x + 1, next(numbers), next(numbers)), one(ramp()), lambda: next(numbers), lambda: list(log))


@probe()
def outside_map_whose_function_changes():
    holder = {"f": lambda k: k + 1}
    numbers = map(lambda k: holder["f"](k), range(30))
    return Scene(lambda x: (x + 1, next(numbers)), one(ramp()), lambda: holder.update(f=lambda k: k * 100))


@probe()
def outside_islice_over_tensors():
    def running():
        total = torch.zeros(4)
        while True:
            total = total + 1
            yield total

    several = itertools.islice(running(), 0, 20, 2)
    return Scene(lambda x: x + next(several), one(ramp()), lambda: next(several))


@probe("SB009")
def outside_map_over_a_generator_that_breaks():
    log: list[Any] = []

    def breaking():
        for k in range(20):
            log.append(k)
            stator.graph_break()
            yield k

    numbers = map(lambda k: k + 1, breaking())
    return Scene(lambda x: (x + 1, next(numbers), next(numbers)), one(ramp()), lambda: next(numbers), lambda: list(log))


@probe()
def outside_enumerate_over_a_generator_that_raises():
    log: list[Any] = []

    def failing():
        yield from noted(log, 5)
        raise KeyError("end")

    numbers = enumerate(failing())

    def fn(x):
        try:
            return x + 1, next(numbers), next(numbers)
        except KeyError as error:
            return x, str(error)

    return Scene(fn, one(ramp()), lambda: next(numbers), lambda: list(log))


@probe("SB014")
def outside_set_iterator_whose_set_changes():
    members = {1, 2, 3, 4, 5}
    walker = iter(members)

    def fn(x):
        first = next(walker)
        members.add(99)
        try:
            return x + 1, first, next(walker)
        except RuntimeError as error:
            return x, first, str(error)

    return Scene(fn, one(ramp()), lambda: members.add(9), lambda: sorted(members))


@probe("SB014")
def outside_deque_iterator_whose_deque_was_turned():
    items = collections.deque([1, 2, 3, 4, 5])
    walker = iter(items)
    return Scene(lambda x: (x + 1, next(walker)), one(ramp()), lambda: items.append(items.popleft()), lambda: list(items))


@probe("SB014")
def outside_deque_iterator_beside_item_assignment():
    items = collections.deque(range(20))
    walker = iter(items)

    def fn(x):
        first = next(walker)
        items[3] = 77
        return x + 1, first, next(walker)

    return Scene(fn, one(ramp()), lambda: next(walker), lambda: list(items))


@probe("SB014")
def outside_set_iterator_of_a_set_that_comes_to_change():
    members = set(range(20))
    walker, slot = iter(members), [{5}]

    def fn(x):
        first = next(walker)
        slot[0].add(3)
        return x + 1, first, next(walker, None)

    return Scene(fn, one(ramp()), lambda: slot.__setitem__(0, members), lambda: sorted(members))


@probe()
def outside_ordered_items_that_are_written_to():
    items = collections.OrderedDict((k, [k]) for k in range(20))
    walker = iter(items.items())

    def fn(x):
        key, found = next(walker)
        found.append(key)
        return x + key

    return Scene(fn, one(ramp()), lambda: next(walker), lambda: items)


@probe("SB014")
def outside_groups():
    log: list[Any] = []
    groups = itertools.groupby(noted(log), lambda k: k // 3)

    def fn(x):
        key, members = next(groups)
        return x + key, list(members)

    return Scene(fn, one(ramp()), lambda: next(groups), lambda: list(log))


@probe("SB014")
def group_that_is_invalid_once_its_groupby_moves():
    groups = itertools.groupby([1, 1, 3, 3])
    next(groups)
    held, seen = [next(groups)[1]], []
    return Scene(lambda x: x + sum(key for key, _ in groups), one(ramp()), lambda: seen.extend(map(list, held)),
                 lambda: list(seen))


@probe()
def outside_cycle_of_text_in_a_loop():
    turns = itertools.cycle("abc")

    def fn(x):
        for count, letter in enumerate("wxyz"):
            x = x + count
            letter = next(turns) + letter
        for again in turns:
            if again == "b":
                break
        return x, letter, again

    return Scene(fn, one(ramp()), lambda: next(turns))


@probe()
def outside_pairs_handed_to_c_code():
    pairs, pools = zip(range(30), range(30, 60)), itertools.product([1, 2, 3], [4, 5, 6, 7])

    def fn(x):
        return x * sum(next(pairs)), max(*next(pairs)), str(next(pools)), next(pools), dict([next(pairs)])

    return Scene(fn, one(ramp()), lambda: (next(pairs), next(pools)))
