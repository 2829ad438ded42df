"""Sources are hashed and compared by their C base class."""

import gc
import weakref

import pytest

from stator.source import (
    WORLD,
    Attr,
    CallOf,
    Copied,
    DictOf,
    Drawn,
    Global,
    Index,
    Key,
    Local,
    Pinned,
    SetAt,
    Slot,
    with_base,
)


def chain(depth: int, last: object = "n") -> Key:
    source = Local("x", 0)
    for _ in range(depth):
        source = Key(DictOf(source), "child")
    return Key(source, last)


def test_equal_chains_are_one_key():
    assert chain(20) == chain(20) and hash(chain(20)) == hash(chain(20)) and not chain(20) != chain(20)
    assert {chain(20): 1}[chain(20)] == 1
    assert chain(3).depth == 7 and chain(3).root == Local("x", 0) and Local("x", 0).base is None


@pytest.mark.parametrize("other", [chain(19), chain(20, "m"), chain(20).base, WORLD, 3, None, "x"])
def test_others_differ(other):
    assert chain(20) != other and not chain(20) == other


def test_family_and_detail_tell_steps_apart():
    base = Local("x", 0)
    assert Key(base, 0) != Index(base, 0)
    scope = Pinned({})
    assert Global(scope, "n") == Key(scope, "n")  # of one family, and the same read
    nan = float("nan")
    assert Key(base, nan) != Key(base, nan)  # as == says


class OfOneHash:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return 5

    def __eq__(self, other):
        return self.value == other.value


X = Local("x", 0)
LENGTH = Pinned(len)


@pytest.mark.parametrize(("one", "other"), [
    (Local("x", -1), Local("x", -2)), (Drawn(-1, "rand"), Drawn(-2, "rand")), (Copied(-1, "x"), Copied(-2, "x")),
    (Pinned(len), Pinned(max)), (Key(X, -1), Key(X, -2)), (Index(X, -1), Index(X, -2)), (SetAt(X, -1), SetAt(X, -2)),
    (Slot(X, "n", int), Slot(X, "m", int)), (Slot(X, "n", int), Slot(X, "n", str)), (Attr(X, "start"), Attr(X, "stop")),
    (CallOf(LENGTH, (Key(X, -1),)), CallOf(LENGTH, (Key(X, -2),))), (CallOf(LENGTH, (X,)), CallOf(Pinned(max), (X,))),
    (CallOf(LENGTH, (X,)), CallOf(LENGTH, (X, X))),
])
def test_two_that_hash_alike_are_told_apart(one, other):
    base = one.base
    for each in (one, other):
        each._seal(base, OfOneHash(each.detail))
    assert hash(one) == hash(other)
    assert one != other and not one == other and len({one, other}) == 2


@pytest.mark.parametrize("step", [
    Key(X, "a"), Global(Pinned({}), "a"), Index(X, 3), SetAt(X, 3), Slot(X, "n", int), Attr(X, "start"), DictOf(X),
])
def test_the_same_step_from_another_base(step):
    moved = with_base(step, Local("y", 1))
    assert moved.base == Local("y", 1) and moved._family == step._family and moved.detail == step.detail
    assert moved != step and with_base(moved, step.base) == step


def test_what_tells_two_apart_may_raise():
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise ValueError("odd")

    base = Local("x", 0)
    with pytest.raises(ValueError, match="odd"):
        bool(Key(base, Odd()) == Key(base, Odd()))
    with pytest.raises(TypeError):
        Key("not a source", 1)
    with pytest.raises(TypeError):
        Key(base, [])  # no hash
    with pytest.raises(AttributeError):
        base.base = None


def test_a_cycle_through_a_source_is_collected():
    class Held:
        pass

    held = Held()
    held.source = Key(DictOf(Pinned(held)), "n")
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert gone() is None
