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


def unexpected(log: list[events.Event]) -> list[str]:
    """Calls that ran eagerly, but those in which CPython computes annotations and keeps them: since 3.14."""
    found = [event.why for event in log if isinstance(event, events.EagerFallback)]
    return [why for why in found if "which reading makes" not in why or "__annotate__" not in vars(type)]


def test_made_by_reading_and_assigned_later() -> None:
    ours, program = family()
    theirs, expected = family()
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    with events.record() as log:
        assert str(compiled(torch.ones(2))) == str(expected(torch.ones(2)))
    assert not unexpected(log)
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


@pytest.mark.skipif("__annotate__" in vars(type), reason="made by a function of the class, since 3.14")
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


ANNOTATED = """
class Plain:
    size: int
    name: "str"

class Empty:
    pass

def annotations(x):
    return x + 1, Plain.__annotations__, len(Plain.__annotations__)

def annotate(x):
    return x + 1, Plain.__annotate__(1), Empty.__annotate__ is None

def parameters(x):
    return x + 1, Plain.__type_params__
"""
CHANGES = {
    "__annotations__": ({"other": float}, {}),
    "__annotate__": (lambda form: {"other": float}, None),
    "__type_params__": ((1,), ()),
}


@pytest.mark.parametrize("known", [False, True], ids=["not read before", "read before"])
@pytest.mark.parametrize("name", ["annotations", *(
    program for program, member in (("annotate", "__annotate__"), ("parameters", "__type_params__")) if member in vars(type))])
def test_annotations_of_the_class_body(name: str, known: bool) -> None:
    """The annotations that a class was declared with are read, and a change is seen: 3.14 computes them as they are read."""
    sides = []
    for _ in range(2):
        scope: dict[str, Any] = {"__name__": "annotated"}
        exec(compile(ANNOTATED, "annotated.py", "exec", dont_inherit=True), scope)
        sides.append(scope)
    ours, theirs = sides
    compiled = stator.compile(ours[name], backend="eager")

    def same() -> None:
        found, expected = show(compiled), show(theirs[name])
        assert found == expected
        assert [sorted(vars(ours[cls])) for cls in ("Plain", "Empty")] == [sorted(vars(theirs[cls])) for cls in ("Plain", "Empty")]

    def show(fn: Any) -> str:
        try:
            return str(fn(torch.ones(2)))
        except TypeError as error:
            return repr(error)

    if known:
        for scope in sides:
            for cls in (scope["Plain"], scope["Empty"]):
                str(cls.__annotations__)
    with events.record() as log:
        for _ in range(3):
            same()
        for member, values in CHANGES.items():
            for value in values if member in vars(type) else ():
                for scope in sides:
                    setattr(scope["Plain"], member, value)
                same()
                same()
    assert not unexpected(log)
