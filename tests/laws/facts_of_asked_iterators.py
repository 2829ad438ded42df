"""Probes: iterators from outside that are asked for more than their next item: `in`, copies, how long they are."""

from __future__ import annotations

import collections
import copy
import itertools
import operator
import weakref
from collections.abc import Callable
from typing import Any

from probing import CAPTURED, Scene, probe, ramp
from scenery import Thing, box

MAKERS: dict[str, Callable[[int], Any]] = {
    "list": lambda n: iter(list(range(n))),
    "tuple": lambda n: iter(tuple(range(n))),
    "range": lambda n: iter(range(n)),
    "set": lambda n: iter(set(range(n))),
    "deque": lambda n: iter(collections.deque(range(n))),
    "product": lambda n: itertools.product(range(n), repeat=2),
    "zip": lambda n: zip(range(n), range(1, n + 1)),
    "enumerate": lambda n: enumerate(range(n)),
    "chain": lambda n: itertools.chain(range(n), range(2)),
    "tee": lambda n: itertools.tee(range(n))[0],
}


def found(it: Any) -> Any:
    return 1 in it or (0, 1) in it


def copied(it: Any) -> Any:
    return list(copy.copy(it))


def copied_twice(it: Any) -> Any:
    twin = copy.copy(it)
    return twin, next(twin), next(it, None)


def reduced(it: Any) -> Any:
    return len(it.__reduce__())


def how_long(it: Any) -> Any:
    return operator.length_hint(it, -1)


def _asked(name: str, use: Callable[[Any], Any], make: Callable[[int], Any], expected: str) -> None:
    def scene() -> Scene:
        world = box(n=3, it=iter(()), rests=[])

        def args() -> tuple[Any, ...]:
            world.rests.append(list(world.it))  # where the last call has left it
            world.it = make(world.n)
            return ramp(), world.it

        return Scene(lambda x, it: (x + 1, use(it)), args, lambda: setattr(world, "n", 5), lambda: list(world.rests))

    scene.__name__ = f"{use.__name__}_of_outside_{name}"
    probe(expected)(scene)


for _name, _make in MAKERS.items():
    _asked(_name, found, _make, CAPTURED)
    _asked(_name, how_long, _make, CAPTURED)
    if _name not in ("chain", "tee"):  # whose own __reduce__, and whose __copy__, are looked at elsewhere
        _asked(_name, copied, _make, "SB014")
        _asked(_name, copied_twice, _make, "SB014 SB007")
        _asked(_name, reduced, _make, "SB014")


@probe()
def membership_asks_a_map_no_further():
    log: list[int] = []
    items = [1, 2, 3, 4]

    def fn(x):
        return x + 1, 2 in map(lambda k: log.append(k) or k, items)

    return Scene(fn, lambda: (ramp(),), lambda: items.insert(0, 0), lambda: list(log))


@probe("SB019")
def variable_keeps_what_a_proxy_shows():
    def fn(x):
        thing = Thing()
        thing.n = 3
        shown = weakref.proxy(thing)
        return x + shown.n

    return Scene(fn, lambda: (ramp(),))


@probe("SB019")
def list_keeps_what_proxies_show():
    def fn(x):
        things = [box(n=3), box(n=4)]
        shown = list(map(weakref.proxy, things))
        return x + shown[0].n * shown[1].n

    return Scene(fn, lambda: (ramp(),))
