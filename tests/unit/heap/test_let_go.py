"""Memos of a trace about the program's objects do not keep them alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import stator


def test_classes_die_with_the_functions_that_made_them() -> None:
    def made() -> list[weakref.ref[type]]:
        class Slotted:
            __slots__ = ("n",)

        class Tags(dict):
            pass

        class Settings:
            def __init__(self) -> None:
                self.slotted, self.tags = Slotted(), Tags(a=1)
                self.slotted.n = 2

        settings = Settings()
        compiled = stator.compile(lambda x: x * settings.slotted.n + settings.tags["a"], backend="eager")
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
        return [weakref.ref(cls) for cls in (Slotted, Tags, Settings)]

    references = made()
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]


class Held(Exception):
    """Stands for itself in a trace."""


HOLDER: Any = None


def reading() -> Any:
    absent = HOLDER is None
    held = yield 1
    yield absent, held


def generator_that_leaves(x: torch.Tensor) -> Any:
    body = reading()
    return x + next(body), body


def generator_that_holds_itself(x: torch.Tensor) -> Any:
    body = reading()
    n = next(body)
    body.send(body)
    return x + n


@pytest.mark.parametrize("fn", [generator_that_leaves, generator_that_holds_itself])
def test_what_a_global_held_dies_at_once(fn: Any) -> None:
    """A generator that waits has the names that it has read; the collector does not have to come for them."""
    global HOLDER
    HOLDER = Held()
    reference = weakref.ref(HOLDER)
    collecting = gc.isenabled()
    gc.disable()
    try:
        stator.compile(fn, backend="eager")(torch.ones(2))
        HOLDER = None
        assert reference() is None
    finally:
        if collecting:
            gc.enable()
