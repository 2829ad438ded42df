"""Probes: functools.lru_cache from outside: its counts, its order, the identity of what it keeps."""

from __future__ import annotations

import enum
import functools
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import box, one

import stator
from stator.library.python.caches_and_locks import table_of


def counts(cached: Any) -> tuple[Any, ...]:
    return tuple(cached.cache_info())


@probe()
def lru_cache():
    calls: list[int] = []

    @functools.lru_cache
    def scale(n):
        calls.append(n)
        return n * 2

    return Scene(lambda x: x * scale(x.shape[0]), one(ramp()), scale.cache_clear, lambda: (list(calls), counts(scale)))


@probe()
def lru_cache_hit():
    @functools.lru_cache
    def scale(n):
        return n * 2

    scale(4)
    return Scene(lambda x: x * scale(x.shape[0]), one(ramp()), scale.cache_clear, lambda: counts(scale))


@probe()
def lru_cache_without_a_bound():
    @functools.cache
    def scale(n):
        return n * 2

    return Scene(lambda x: x * scale(x.shape[0]) + scale(2), one(ramp()), scale.cache_clear, lambda: counts(scale))


@probe()
def lru_cache_of_objects():
    @functools.lru_cache
    def made(n):
        return [n]

    kept: list[Any] = []

    def fn(x):
        kept.append(made(3))
        made(3).append(x.shape[0])
        return x * len(made(3)), made(3) is made(3)

    return Scene(fn, one(ramp()), made.cache_clear, lambda: ([item is kept[0] for item in kept], kept, counts(made)))


@probe()
def lru_cache_of_tensors():
    @functools.lru_cache
    def mask(n):
        return torch.ones(n)

    return Scene(lambda x: (x * mask(x.shape[0]), mask(4) is mask(4), mask(4)), one(ramp()), lambda: mask(4).fill_(3),
                 lambda: counts(mask))


@probe()
def lru_cache_of_a_fact_that_changed():
    ks = [2]

    @functools.lru_cache
    def scale(n):
        return ks[0] * n

    scale(4)
    return Scene(lambda x: x * scale(x.shape[0]), one(ramp()), lambda: ks.__setitem__(0, 5), lambda: counts(scale))


@probe()
def lru_cache_filled_with_an_older_fact():
    ks = [2]

    @functools.lru_cache
    def scale(n):
        return ks[0] * n

    def change():
        scale.cache_clear()
        ks[0] = 7
        scale(4)
        ks[0] = 2

    return Scene(lambda x: x * scale(x.shape[0]), one(ramp()), change, lambda: counts(scale))


@probe()
def lru_cache_with_keywords():
    @functools.lru_cache
    def scale(n, k=1):
        return n * k

    return Scene(lambda x: x * scale(x.shape[0], k=3) + scale(n=1) + scale(k=3, n=4), one(ramp()), scale.cache_clear,
                 lambda: counts(scale))


@probe()
def lru_cache_of_equal_numbers():
    @functools.lru_cache
    def scale(n):
        return n * 2

    return Scene(lambda x: (x * scale(4.0), scale(True), scale(1.0), scale(1)), one(ramp()), scale.cache_clear,
                 lambda: counts(scale))


@probe()
def lru_cache_by_type():
    @functools.lru_cache(typed=True)
    def scale(n):
        return n * 2

    return Scene(lambda x: (x * 2, scale(4), scale(4.0), scale(True)), one(ramp()), scale.cache_clear,
                 lambda: counts(scale))


@probe()
def lru_cache_of_a_method():
    class Model:
        def __init__(self):
            self.k = 2

        @functools.lru_cache
        def scale(self, n):
            return [self.k * n]

    model = Model()
    return Scene(lambda x: x * model.scale(x.shape[0])[0], one(ramp()), lambda: setattr(model, "k", 5),
                 lambda: counts(Model.scale))


@probe("SB013")
def lru_cache_keyed_by_objects_that_hash_themselves():
    class Model:
        k = 2

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    @functools.lru_cache
    def scale(model):
        return [model.k]

    slot = [Model()]
    return Scene(lambda x: x * scale(slot[0])[0], one(ramp()), lambda: slot.__setitem__(0, Model()),
                 lambda: counts(scale))


@probe()
def lru_cache_keyed_by_enum_members():
    class Mode(enum.Enum):
        FAST = 2
        SLOW = 3

    @functools.lru_cache
    def scale(mode):
        return mode.value

    slot = [Mode.FAST]
    return Scene(lambda x: x * scale(slot[0]), one(ramp()), lambda: slot.__setitem__(0, Mode.SLOW),
                 lambda: counts(scale))


@probe()
def lru_cache_that_recurses():
    @functools.lru_cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return Scene(lambda x: x * fibonacci(10), one(ramp()), fibonacci.cache_clear, lambda: counts(fibonacci))


@probe("SB013")
def lru_cache_that_overflows():
    @functools.lru_cache(maxsize=2)
    def made(n):
        return [n]

    state, kept = [0], [made(1)]

    def fn(x):
        state[0] += 1
        y = x * made(state[0])[0]
        made(state[0] + 1)
        kept.append(made(1))
        return y

    return Scene(fn, one(ramp()), made.cache_clear, lambda: (counts(made), [item is kept[0] for item in kept]))


def full_cache(order):
    @functools.lru_cache(maxsize=3)
    def made(n):
        return [n]

    kept = {n: made(n) for n in (1, 2, 3)}
    found: list[bool] = []

    def fn(x):
        y = x * made(9)[0]
        found.append(made(2) is kept[2])
        return y

    def fill_again():
        made.cache_clear()
        kept.update((n, made(n)) for n in order)

    return Scene(fn, one(ramp()), fill_again, lambda: (counts(made), sorted(table_of(made)), found))


@probe()
def lru_cache_that_is_full():
    return full_cache((3, 2, 1))


@probe("SB013")
def lru_cache_that_is_full_in_another_order():
    return full_cache((2, 3, 1))


@probe("SB013")
def lru_cache_that_pushes_out_what_is_sought():
    @functools.lru_cache(maxsize=2)
    def made(n):
        return [n]

    kept = [made(1), made(2)]
    found: list[bool] = []

    def fn(x):
        y = x * made(9)[0]
        found.append(made(1) is kept[0])
        return y

    return Scene(fn, one(ramp()), made.cache_clear, lambda: (counts(made), sorted(table_of(made)), found))


@probe("SB013")
def lru_cache_that_forgets_its_own_results():
    @functools.lru_cache(maxsize=2)
    def made(n):
        return [n]

    def fn(x):
        first = made(1)
        made(2), made(3)
        return x * first[0], made(1) is first

    return Scene(fn, one(ramp()), made.cache_clear, lambda: (counts(made), sorted(table_of(made))))


@probe()
def lru_cache_of_no_entries():
    @functools.lru_cache(maxsize=0)
    def scale(n):
        return n + 1

    return Scene(lambda x: x * scale(3) + scale(3), one(ramp()), scale.cache_clear, lambda: counts(scale))


@probe()
def lru_cache_in_the_order_of_use():
    @functools.lru_cache(maxsize=3)
    def made(n):
        return [n]

    made(1), made(2), made(3)
    return Scene(lambda x: x * made(1)[0] + made(2)[0], one(ramp()), lambda: made(9),
                 lambda: (counts(made), sorted(table_of(made))))


@probe()
def lru_cache_of_a_function_that_raises():
    @functools.lru_cache
    def scale(n):
        raise ValueError(n)

    def fn(x):
        try:
            scale(3)
        except ValueError as error:
            return x * error.args[0]

    return Scene(fn, one(ramp()), scale.cache_clear, lambda: counts(scale))


@probe("SB013")
def lru_cache_asked_for_its_counts():
    @functools.lru_cache
    def scale(n):
        return n

    def fn(x):
        first, info, second = scale(3), scale.cache_info(), scale(3)
        return x * first + second, tuple(info), tuple(scale.cache_info())

    return Scene(fn, one(ramp()), scale.cache_clear, lambda: counts(scale))


@probe("SB013")
def lru_cache_cleared_inside():
    @functools.lru_cache
    def made(n):
        return [n]

    def fn(x):
        first = made(3)
        made.cache_clear()
        return x * first[0], first is made(3)

    return Scene(fn, one(ramp()), made.cache_clear, lambda: counts(made))


@probe("SB009")
def lru_cache_of_a_function_that_breaks():
    @functools.lru_cache
    def made(n):
        stator.graph_break()
        return [n]

    return Scene(lambda x: x * made(3)[0] + made(3)[0], one(ramp()), made.cache_clear, lambda: counts(made))


@probe()
def lru_cache_exchanged_for_another():
    first, second = functools.lru_cache(lambda n: [n]), functools.lru_cache(lambda n: [n * 10])
    slot = [first]
    return Scene(lambda x: x * slot[0](2)[0], one(ramp()), lambda: slot.__setitem__(0, second),
                 lambda: (counts(first), counts(second)))


@probe()
def lru_cache_with_a_key_that_collides():
    asked: list[int] = []

    class Five:
        def __hash__(self):
            return hash(5)

        def __eq__(self, other):
            asked.append(1)
            return False

    @functools.lru_cache(maxsize=None)
    def scale(n, m):
        return 2 if type(n) is Five else n * m

    scale(Five(), 2)
    world = box(n=5)

    def look():
        return len(asked) > 0, scale.cache_info()

    return Scene(lambda x: x * scale(world.n, 2), one(ramp()), lambda: setattr(world, "n", 6), look)
