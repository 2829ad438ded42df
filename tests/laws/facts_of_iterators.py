"""Probes: iterators and generators from outside, advanced by the program."""

from __future__ import annotations

import itertools

from probing import Scene, probe, ramp
from scenery import one


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


@probe("SB014 SB005 SB001")
def outside_generator():
    def numbers():
        for n in range(20):
            seen.append(n)
            yield n

    seen: list[int] = []
    stream = numbers()
    return Scene(lambda x: x * next(stream), one(ramp()), lambda: next(stream), lambda: list(seen))


@probe("SB014 SB005 SB001")
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


@probe("SB014")
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


@probe("SB014")
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
