"""Annotations of classes that have none of their own: CPython makes them as they are read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator import events


def family() -> tuple[type, Any]:
    class Plain:
        pass

    def count(x: Any) -> Any:
        return x + 1, len(Plain.__annotations__), "__annotations__" in Plain.__dict__

    return Plain, count


def stored(cls: type) -> Any:
    """Annotations in the dict of a class: 3.14 has another name for those that it has computed."""
    return vars(cls).get("__annotations__", vars(cls).get("__annotations_cache__"))


def test_made_by_reading_and_assigned_later() -> None:
    ours, program = family()
    theirs, expected = family()
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    with events.record() as log:
        assert str(compiled(torch.ones(2))) == str(expected(torch.ones(2)))
    assert not any(isinstance(event, events.EagerFallback) for event in log)
    assert stored(ours) == stored(theirs)
    with events.record() as log:
        compiled(torch.ones(2))
    assert any(isinstance(event, events.BackendCompiled) for event in log)
    for change in (None, {"b": 1}, None, {"c": 1, "d": 2}):
        if change is not None:
            ours.__annotations__, theirs.__annotations__ = dict(change), dict(change)
        assert str(compiled(torch.ones(2))) == str(expected(torch.ones(2)))
        assert stored(ours) == stored(theirs)
    ours.__annotations__["e"] = theirs.__annotations__["e"] = 3
    assert str(compiled(torch.ones(2))) == str(expected(torch.ones(2)))


def writes(x: Any, cls: Any) -> Any:
    found = cls.__annotations__
    found["n"] = int
    return x + 1, cls.__annotations__, cls.__annotations__ is found, cls.__mro__[1].__annotations__


@pytest.mark.skipif(hasattr(type, "__annotate__"), reason="made by a function of the class, since 3.14")
def test_made_by_reading_in_the_first_call() -> None:
    for whole in (True, False):
        pairs = []
        for _ in range(2):
            class Base:
                pass

            class Derived(Base):
                shown = 1
            pairs.append(Derived)
        ours, theirs = pairs
        compiled = stator.compile(writes, backend="eager", fullgraph=whole)
        with events.record() as log:
            for _ in range(3):
                assert str(compiled(torch.ones(2), ours)) == str(writes(torch.ones(2), theirs))
                assert list(vars(ours)) == list(vars(theirs)) and ours.__annotations__ == theirs.__annotations__
                assert ours.__annotations__ is not ours.__mro__[1].__annotations__
        assert not any(isinstance(event, events.EagerFallback | events.GraphBreak) for event in log)
