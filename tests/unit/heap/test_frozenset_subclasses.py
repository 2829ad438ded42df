"""Instances of subclasses of frozenset, from outside and made inside."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

X = torch.ones(2)


class Tags(frozenset):
    pass


class Counted(frozenset):
    def __contains__(self, item):
        return item == "always" or frozenset.__contains__(self, item)

    def __len__(self):
        return 7


class Slotted(frozenset):
    __slots__ = ("x", "__dict__")


class Named:
    def __init__(self, name):
        self.name = name


def read(x, tags):
    return (len(tags), 3 in tags, tags == {1, 2, 3}, hash(tags) == hash(frozenset(tags)), sorted(tags), tags <= {1, 2, 3, 4},
            type(tags & {1, 3}), tags & {1, 3}, tags | {9}, tags - {1}, tags ^ {1}, type(tags.copy()), x + len(tags))


def overridden(x, tags):
    return len(tags), "always" in tags, "a" in tags, frozenset.__len__(tags), x + 1


def attributes(x, tags):
    before = getattr(tags, "x", None)
    tags.x = [before]
    tags.y = 3
    return before, x + 1


def returned(x, tags):
    return tags, {"kept": tags}, x + 1


def augmented(x, tags):
    before = tags
    tags |= {7}
    tags &= {7, 1}
    return tags, before is tags, x + 1


def made(x, n):
    tags = Tags([1, 2, n])
    tags.note = [x]
    return tags, type(tags), tags == {1, 2, n}


def copied(x, tags):
    again = pickle.loads(pickle.dumps(tags))
    return again == tags, type(again), copy.deepcopy(tags) == tags, x + 1


def of_objects(x, tags, wanted):
    return len(tags), wanted in tags, sorted(each.name for each in tags), x + 1


FIRST, SECOND = Named("first"), Named("second")


@pytest.mark.parametrize("function, calls", [
    (read, [(Tags([1, 2, 3]),), (Tags([1, 2]),), (frozenset([1, 2, 3]),), (Tags([1, 2, 3]),)]),
    (overridden, [(Counted("ab"),), (Counted("b"),)]),
    (attributes, [(Slotted([1]),), (Slotted([1, 2]),), (Tags([1]),)]),
    (returned, [(Tags([1, 2, 3]),), (Tags(),)]),
    (augmented, [(Tags([1, 2, 3]),), (Tags([4]),)]),
    (made, [(5,), (2,)]),
    (copied, [(Tags([1, 2, 3]),), (Tags([1]),)]),
    (of_objects, [(Tags([FIRST, SECOND]), FIRST), (Tags([FIRST]), SECOND)]),
])
def test_they_are_captured_whole(function, calls):
    same_as_eager(function, *[call(X, *each) for each in calls])


def test_the_very_object_is_returned_and_changed():
    compiled = stator.compile(attributes, backend="eager", fullgraph=True)
    tags = Tags([1, 2])
    compiled(X, tags)
    assert vars(tags) == {"x": [None], "y": 3}
    same = stator.compile(returned, backend="eager", fullgraph=True)(X, tags)
    assert same[0] is tags and same[1]["kept"] is tags


def test_a_frozenset_of_objects_is_never_written_back():
    def joined(x, tags):
        tags |= {x.dim()}
        return len(tags)

    compiled = stator.compile(joined, backend="eager")
    for kind in (frozenset, Tags):
        tags = kind([FIRST, SECOND])
        assert compiled(X, tags) == 3 and tags == {FIRST, SECOND}
