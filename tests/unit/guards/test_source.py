"""Sources: identity, immutability and the words they print."""

import pytest
import torch

import stator
from stator.source import (
    WORLD,
    Attr,
    CallOf,
    CellOf,
    DictOf,
    Global,
    Index,
    Key,
    KeyAt,
    Local,
    Pinned,
    SetAt,
    Slot,
    Source,
    TypeOf,
    ValueAt,
    name_of,
    parents,
    root_of,
)

SELF = Local("self", 0)


class Slotted:
    __slots__ = ("a",)


def free_variable_user() -> None:
    return None


def make_closure(scale: int):
    def inner() -> int:
        return scale

    return inner


INNER = make_closure(3)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (SELF, "self"),
        (Pinned(Slotted), "Slotted"),
        (Pinned(free_variable_user), "free_variable_user"),
        (Pinned(3), "3"),
        (Global(Pinned(globals()), "CONFIG"), "CONFIG"),
        (DictOf(SELF), "self.__dict__"),
        (Key(DictOf(SELF), "n"), "self.n"),
        (Key(SELF, "k"), "self['k']"),
        (Key(SELF, 3), "self[3]"),
        (Key(Key(DictOf(SELF), "_modules"), "q"), "self.q"),
        (Key(Key(DictOf(SELF), "_modules"), "0"), "self[0]"),
        (Key(Key(DictOf(SELF), "_parameters"), "weight"), "self.weight"),
        (Key(Key(DictOf(SELF), "_buffers"), "mean"), "self.mean"),
        (Key(Key(DictOf(SELF), "table"), "mean"), "self.table['mean']"),
        (KeyAt(SELF, 1), "list(self)[1]"),
        (ValueAt(SELF, 1), "list(self.values())[1]"),
        (Index(SELF, 2), "self[2]"),
        (SetAt(SELF, 2), "list(self)[2]"),
        (Slot(SELF, "a", Slotted), "self.a"),
        (Attr(SELF, "__closure__"), "self.__closure__"),
        (CellOf(SELF), "self.cell_contents"),
        (CellOf(Index(Attr(Pinned(INNER), "__closure__"), 0)), "scale"),
        (TypeOf(SELF), "type(self)"),
        (CallOf(Pinned(len), (SELF,)), "len(self)"),
        (WORLD, "torch's global state"),
    ],
)
def test_text_is_in_the_users_terms(source: Source, text: str) -> None:
    assert source.text() == text


def test_equal_steps_are_equal_and_hash_alike() -> None:
    left = Key(DictOf(Local("self", 0)), "n")
    right = Key(DictOf(Local("self", 0)), "n")
    assert left == right and hash(left) == hash(right)
    assert left != Key(DictOf(Local("self", 0)), "m")
    assert Index(SELF, 1) != KeyAt(SELF, 1)
    assert Slot(SELF, "a", Slotted) != Attr(SELF, "a")


def test_a_global_is_the_key_it_reads() -> None:
    scope = Pinned(globals())
    assert Global(scope, "x") == Key(scope, "x")


def test_pinned_objects_compare_by_identity() -> None:
    assert Pinned([1]) != Pinned([1])
    shared: list[int] = []
    assert Pinned(shared) == Pinned(shared)


def test_sources_are_frozen() -> None:
    with pytest.raises(AttributeError, match="frozen"):
        SELF.name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del SELF.name


def test_roots_depths_and_parents() -> None:
    deep = Index(Key(DictOf(SELF), "xs"), 0)
    assert root_of(deep) is SELF and deep.depth == 3 and SELF.depth == 0
    assert parents(deep) == (deep.base,) and parents(SELF) == ()
    call = CallOf(Pinned(len), (deep,))
    assert parents(call) == (call.fn, deep) and root_of(call) is call


def test_naming_an_object_runs_none_of_its_code() -> None:
    class Loud(type):
        def __getattribute__(cls, name: str) -> object:
            raise AssertionError("metaclass code ran")

    class Thing(metaclass=Loud):
        def __repr__(self) -> str:
            raise AssertionError("repr ran")

        def __getattribute__(self, name: str) -> object:
            raise AssertionError("getattribute ran")

    assert name_of(object.__new__(Thing)).startswith("<")
    assert "Thing" in name_of(Thing)


def test_guards_name_free_variables() -> None:
    """As the program calls them, not by the address of their cell."""
    steps = [2]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * steps[0]

    said = [guard.text() for guard in stator.explain(program)(torch.ones(2)).guards]
    assert "type(steps) is list" in said and any(line.startswith("steps[0]") for line in said)
    assert not [line for line in said if "cell" in line]
