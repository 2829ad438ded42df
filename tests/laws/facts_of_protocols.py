"""Probes: classes whose special methods, bases and registrations C code looks at, changed between calls."""

from __future__ import annotations

import collections.abc

from probing import Scene, probe, ramp
from scenery import one


@probe()
def class_registered_as_a_sequence():
    class Own:
        def __len__(self):
            return 1

        def __getitem__(self, place):
            return 2

    own = Own()

    def fn(x):
        match own:
            case [value]:
                return x * value
        return x

    return Scene(fn, one(ramp()), lambda: collections.abc.Sequence.register(Own))


@probe()
def bases_of_an_object():
    class Proxy:
        def __init__(self, *bases):
            self.own = bases

        @property
        def __bases__(self):
            return self.own

    base = Proxy()
    last = Proxy(Proxy(), base)
    return Scene(lambda x: x + issubclass(last, base), one(ramp()), lambda: setattr(last, "own", (Proxy(),)))


@probe()
def class_that_becomes_an_iterator():
    class Own:
        def __iter__(self):
            return self

    own = Own()

    def fn(x):
        try:
            return x + len([*own])
        except TypeError as error:
            return x, str(error)

    return Scene(fn, one(ramp()), lambda: setattr(Own, "__next__", lambda self: next(iter(()))))


@probe()
def setattr_that_is_setitem_outside():
    class Record(dict):
        __setattr__ = dict.__setitem__

    record = Record(n=1)

    def fn(x):
        record.n = record["n"] + 1
        return x * record["n"]

    return Scene(fn, one(ramp()), lambda: record.__setitem__("n", 7), lambda: dict(record))


@probe()
def property_that_loses_its_setter():
    class Own:
        @property
        def n(self):
            return 1

        @n.setter
        def n(self, value):
            pass

    own = Own()

    def fn(x):
        try:
            own.n = 2
        except AttributeError as error:
            return x, str(error)
        return x + own.n

    return Scene(fn, one(ramp()), lambda: setattr(Own, "n", property(lambda self: 5)))
