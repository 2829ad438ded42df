"""Probes: modules of classes with lookups of their own, generic classes made inside, cells and views of nothing."""

from __future__ import annotations

import types
from typing import Any, Generic, TypeVar

from probing import Scene, probe, ramp
from scenery import one

import stator

LOOKED: list[Any] = []
T = TypeVar("T")


class Watching(types.ModuleType):
    """A module that notes who asks it for what."""

    def __getattribute__(self, name: str) -> Any:
        LOOKED.append(name)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        LOOKED.append((name, value))
        super().__setattr__(name, value)


def watching() -> Any:
    module = Watching("watching")
    vars(module)["n"] = 2
    LOOKED.clear()
    return module


@probe()
def attribute_of_a_module_with_its_own_lookup():
    module = watching()
    log: list[Any] = []

    def fn(x):
        return x + module.n

    def look():
        log.extend(name for name in LOOKED if name == "n" or type(name) is tuple)
        LOOKED.clear()
        return list(log)

    return Scene(fn, one(ramp()), lambda: types.ModuleType.__setattr__(module, "n", 5), look)


@probe("SB001")
def attribute_set_on_a_module_with_its_own_assignment():
    module = watching()

    def fn(x):
        module.n = 3
        return x + module.n

    return Scene(fn, one(ramp()), look=lambda: types.ModuleType.__getattribute__(module, "n"))


@probe()
def empty_cell_made_inside():
    def fn(x):
        def inner():
            return late

        cell = inner.__closure__[0]
        try:
            text = cell.cell_contents
        except ValueError as error:
            text = str(error)
        late = x + 1
        return text, cell.cell_contents, inner()

    return Scene(fn, one(ramp()))


@probe("SB009")
def generic_class_made_inside():
    def fn(x):
        class Holder(Generic[T]):
            def held(self):
                return x + 1

        class Numbers(Holder[int]):
            pass

        stator.graph_break()
        return Numbers().held(), Holder.__parameters__ == (T,), len(Numbers.__orig_bases__)

    return Scene(fn, one(ramp()))


@probe()
def released_view_made_inside():
    def fn(x):
        view = memoryview(b"abc")
        size = view.nbytes
        view.release()
        try:
            size = view.nbytes
        except ValueError as error:
            return x + size, str(error)
        return x

    return Scene(fn, one(ramp()))
