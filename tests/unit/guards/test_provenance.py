"""Sources are hashed and compared by their C base class."""

import gc
import weakref

import pytest

from stator.source import WORLD, DictOf, Global, Index, Key, Local, Pinned


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
