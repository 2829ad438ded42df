"""Probes: hashes that are made of addresses, of the user's objects and of those that are made inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from probing import CAPTURED, Scene, probe, ramp
from scenery import Thing, box, one

import stator


@dataclasses.dataclass(frozen=True)
class Holder:
    held: Any


MAKERS: dict[str, Callable[[Any], Any]] = {
    "object": lambda thing: thing,
    "tuple": lambda thing: (thing, 1),
    "nested_tuple": lambda thing: ((thing,), "a"),
    "frozenset": lambda thing: frozenset((thing, 1)),
    "dataclass": Holder,
    "method": lambda thing: thing.__init__,
    "python_method": lambda thing: Told.tell.__get__(thing),
}


class Told:
    def tell(self) -> None:
        """A method."""


def _hashed(name: str, make: Callable[[Any], Any]) -> None:
    def kept() -> Scene:
        kept: list[Any] = []

        def fn(x):
            value = make(Thing())
            kept.append((value, hash(value)))
            return x + 1

        return Scene(fn, one(ramp()), look=lambda: [hash(value) == number for value, number in kept])

    def leaving() -> Scene:
        def fn(x):
            value = make(Thing())
            number = hash(value)
            stator.graph_break()
            return x + 1, number == hash(value)

        return Scene(fn, one(ramp()))

    def outside() -> Scene:
        world = box(thing=Thing(), numbers=[])

        def fn(x):
            world.numbers.append(hash(make(world.thing)))
            return x + 1

        return Scene(fn, one(ramp()), lambda: setattr(world, "thing", Thing()),
                     lambda: [number == hash(make(world.thing)) for number in world.numbers])

    for scene, expected in ((kept, CAPTURED), (leaving, "SB009 SB013"), (outside, "SB013" if name == "method" else CAPTURED)):
        scene.__name__ = f"hash_of_{name}_{scene.__name__}"
        probe(expected)(scene)


for _name, _make in MAKERS.items():
    _hashed(_name, _make)


class Breaking:
    """A key whose hash cannot be captured."""

    def __hash__(self) -> int:
        stator.graph_break()
        return 7

    def __eq__(self, other: object) -> bool:
        return self is other


@probe("SB009")
def dict_whose_key_breaks_when_it_is_hashed():
    world = box(table={Breaking(): 1})

    def fn(x):
        table = world.table
        table["n"] = table.get("n", 0) + 1
        return x + 1, len(table), list(table.values())

    return Scene(fn, one(ramp()), lambda: world.table.update(m=5), lambda: list(world.table.values()))


@probe("SB009")
def set_whose_member_breaks_when_it_is_hashed():
    world = box(members={Breaking()})

    def fn(x):
        members = world.members
        members.add(len(members))
        return x + 1, len(members)

    return Scene(fn, one(ramp()), lambda: world.members.add("a"), lambda: len(world.members))


@probe("SB003 SB005")
def dict_with_a_key_of_an_open_number():
    """The dict cannot be adopted; what was begun of it must not be met at another place."""
    held = [(3, "a")]
    places = box(first={"b": 2, held[0]: 1})
    places.second = places.first

    def fn(x):
        n = held[0][0]
        absent = places.first is None
        return x + n, absent, len(places.second), list(places.second.values())

    def change():
        held[0] = (held[0][0] + 2, "a")
        places.first.clear()
        places.first.update({"b": 2, held[0]: 1})

    return Scene(fn, one(ramp()), change)
