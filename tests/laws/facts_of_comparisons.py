"""Probes: C code asks `is` before it asks `==`, so that objects unequal to themselves are found by being the same one."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
from probing import Scene, probe, ramp
from scenery import one


class Unequal:
    """Equal to nothing, not even to itself."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 5


class UnequalList(list):
    def __eq__(self, other: object) -> bool:
        return False


class UnequalDict(dict):
    def __eq__(self, other: object) -> bool:
        return False


class Real(float):
    pass


class Plain:
    pass


UNEQUAL: dict[str, Callable[[], Any]] = {
    "objects": Unequal, "lists": UnequalList, "dicts": UnequalDict, "floats": lambda: float("nan"),
    "complex_numbers": lambda: complex("nan"), "decimals": lambda: decimal.Decimal("nan"),
    "numpy_scalars": lambda: np.float64("nan"), "reals": lambda: Real("nan"), "dates": lambda: np.datetime64("NaT"),
    "numbers_in_tuples": lambda: (float("nan"), 1), "numbers_in_lists": lambda: [float("nan"), 1],
}


def searched(make: Callable[[], Any]) -> Callable[[], Scene]:
    def scene() -> Scene:
        held = [make(), make()]

        def fn(x):
            first, second = held
            return x + 1, first in [second], (first,).count(second), [first] == [second], [second].__contains__(first)

        return Scene(fn, one(ramp()), lambda: held.__setitem__(1, held[0]))
    return scene


for name, make in UNEQUAL.items():
    scene = searched(make)
    scene.__name__ = f"unequal_{name}_searched"
    probe()(scene)


@probe()
def unequal_objects_as_keys():
    held = [Unequal(), Unequal()]

    def fn(x):
        first, second = held
        return x + len({first, second}), {first: 1}.get(second), len({first: 1, second: 2})

    return Scene(fn, one(ramp()), lambda: held.__setitem__(1, held[0]))


@probe()
def many_objects_told_apart():
    """More pairs than are asked for one by one."""
    held = [Plain() for _ in range(10)]
    return Scene(lambda x: x + len(set(held)), one(ramp()), lambda: held.__setitem__(3, held[4]))


@probe()
def many_objects_told_apart_one_by_one():
    held = [Plain() for _ in range(10)]
    return Scene(lambda x: (x + len({*held}), held[3] in held[4:]), one(ramp()), lambda: held.__setitem__(3, held[4]))


@probe()
def objects_put_together_from_an_iterator():
    held = [Plain() for _ in range(3)]
    return Scene(lambda x: x + len(set(map(held.__getitem__, range(3)))), one(ramp()), lambda: held.__setitem__(1, held[0]))
