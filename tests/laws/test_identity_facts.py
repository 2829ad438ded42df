"""Objects that are equal to themselves alone: which of two places hold one object is a fact wherever C code compares.

Each program looks for an object in a set of others, in some way; a later call finds the object there.
"""

from __future__ import annotations

import collections
import operator
import types
import weakref

import pytest
import torch

import stator
from stator import events
from stator.heap import identity_facts


class Thing:
    pass


def functions(count):
    def make(i):
        return lambda: i
    return [make(i) for i in range(count)]


KINDS = {
    "things": lambda: [Thing() for _ in range(3)],
    "modules": lambda: [torch.nn.ReLU() for _ in range(3)],
    "functions": lambda: functions(3),
    "builtins": lambda: [len, abs, min],
    "tensors": lambda: [torch.ones(i + 1) for i in range(3)],
}


def added(x, s, o):
    s.add(o)
    return x + len(s)


def discarded(x, s, o):
    s.discard(o)
    return x + len(s)


def updated(x, s, o):
    s.update([o])
    return x + len(s)


def updated_from_an_iterator(x, s, o):
    s.update(iter([o]))
    return x + len(s)


def keyed(x, s, o):
    table = dict.fromkeys(s, 1)
    table[o] = 2
    return x + len(table)


def keyed_from_an_iterator(x, s, o):
    table = {}
    table.update(zip([*s, o], range(3), strict=True))
    return x + len(table)


def removed(x, s, o):
    items = [*s]
    if o in items:
        items.remove(o)
    return x + len(items)


PROGRAMS = [
    added, discarded, updated, updated_from_an_iterator, keyed, keyed_from_an_iterator, removed,
    lambda x, s, o: x + (o in s),
    lambda x, s, o: x + (o in [*s]),
    lambda x, s, o: x + (o in {k: 1 for k in s}),  # noqa: C420
    lambda x, s, o: x + (o in {k: 1 for k in s}.keys()),  # noqa: C420, SIM118
    lambda x, s, o: x + (o in collections.deque(s)),
    lambda x, s, o: x + len(s | {o}),
    lambda x, s, o: x + len(s - {o}),
    lambda x, s, o: x + len(s.symmetric_difference([o])),
    lambda x, s, o: x + s.isdisjoint({o}),
    lambda x, s, o: x + (s >= {o}),
    lambda x, s, o: x + len({*s, o}),
    lambda x, s, o: x + len(set([*s, o])),  # noqa: C405
    lambda x, s, o: x + len(frozenset([*s, o])),
    lambda x, s, o: x + len({o: 1, **{k: 1 for k in s}}),  # noqa: C420
    lambda x, s, o: x + len(dict.fromkeys([*s, o])),
    lambda x, s, o: x + len(collections.OrderedDict((k, 1) for k in [*s, o])),
    lambda x, s, o: x + len(collections.Counter([*s, o])),
    lambda x, s, o: x + {k: 3 for k in s}.get(o, 5),  # noqa: C420
    lambda x, s, o: x + {k: 3 for k in s}.pop(o, 5),  # noqa: C420
    lambda x, s, o: x + any(o == k for k in s),
    lambda x, s, o: x + any(o is k for k in s),
    lambda x, s, o: x + [*s].count(o),
    lambda x, s, o: x + operator.countOf([*s], o),
    lambda x, s, o: x + ((o, 1) in [(k, 1) for k in s]),
    lambda x, s, o: x + ((o, 1) in {(k, 1) for k in s}),
    lambda x, s, o: x + (o in weakref.WeakSet(s)),
    lambda x, s, o: x + (weakref.ref(o) in [weakref.ref(k) for k in s]),
    lambda x, s, o: x + (o.__init__ in [k.__init__ for k in s]),
    lambda x, s, o: x + any(types.SimpleNamespace(a=o) == types.SimpleNamespace(a=k) for k in s),
]
# `==` of tensors is an operation: these compare more than who is who.  Builtins take no weak references.
NOT_OF = {"tensors": {6, 8, 11, 26, 28, 29, 30, 32, 33, 34, 35}, "builtins": {32, 33}, "functions": {34}}


def stale(program, kind: str) -> list[str]:
    a, b, c = KINDS[kind]()
    compiled = stator.compile(program, backend="eager")
    found = []
    for members, sought in (({a, b}, c), ({a, c}, c), ({a, b}, b), ({a, b}, c), ({b, c}, b)):
        expected = program(torch.zeros(1), set(members), sought).item()
        answer = compiled(torch.zeros(1), set(members), sought).item()
        if answer != expected:
            found.append(f"{answer} instead of {expected}")
    stator.reset()
    return found


CASES = [(number, kind) for kind in KINDS for number in range(len(PROGRAMS))
         if number not in NOT_OF.get(kind, ())]


@pytest.mark.parametrize(("number", "kind"), CASES)
def test_who_is_who_is_guarded(number: int, kind: str) -> None:
    assert not stale(PROGRAMS[number], kind)


def test_without_the_guards_it_would_be_noticed(monkeypatch) -> None:
    monkeypatch.setattr(identity_facts, "_guard", lambda heap, sought, others: None)
    noticed = [number for number in range(len(PROGRAMS)) if stale(PROGRAMS[number], "things")]
    assert len(noticed) > 20, noticed


def test_many_objects_take_one_guard() -> None:
    things = [Thing() for _ in range(20)]

    def fn(x, s, o):
        return x + (o in s)

    compiled = stator.compile(fn, backend="eager")
    assert compiled(torch.zeros(1), set(things[:19]), things[19]).item() == 0
    assert compiled(torch.zeros(1), set(things[1:]), things[19]).item() == 1
    assert compiled(torch.zeros(1), set(things[:19]), things[19]).item() == 0
    stator.reset()


def test_among_many_objects() -> None:
    """Too many pairs to be guarded one by one: one reader is asked whether any two are one."""
    class Thing:
        pass

    def program(x, things, sought):
        return x + (1 if sought in things else 2)

    compiled = stator.compile(program, backend="eager")
    things, other = [Thing() for _ in range(60)], Thing()
    for _ in range(3):
        assert compiled(torch.ones(1), things, other).item() == 3
    assert compiled(torch.ones(1), things, things[40]).item() == 2
    with events.record() as log:
        assert compiled(torch.ones(1), [Thing() for _ in range(60)], other).item() == 3
    assert not [event for event in log if type(event) is events.CaptureFinished]
