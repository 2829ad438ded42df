"""Weak references with callbacks, proxies and counts of references, for objects made inside a capture."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

X = torch.ones(2)


class Number:
    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return ("add", self.n, other)

    def __radd__(self, other):
        return ("radd", self.n, other)

    def __sub__(self, other):
        return NotImplemented

    def __mul__(self, other):
        raise ValueError(self.n)

    def __contains__(self, other):
        return other == self.n

    def __bool__(self):
        return self.n > 1

    def __call__(self, *args, **kwargs):
        return self.n, args, kwargs

    def __len__(self):
        return self.n

    def __getitem__(self, key):
        return key + self.n

    def __delitem__(self, key):
        self.n = key

    def __lt__(self, other):
        return self.n < other


def called_where_it_dies(x, n):
    log = []
    obj = Number(n)
    first = weakref.ref(obj, lambda ref: log.append((ref is first, ref() is None, n)))
    plain = weakref.ref(obj)
    log.append((weakref.getweakrefcount(obj), len(weakref.getweakrefs(obj)), plain in weakref.getweakrefs(obj)))
    log.append((first.__callback__ is not None, plain.__callback__))
    del obj
    log.append((first() is None, first.__callback__))
    return x + n, log


def counted(x, n):
    obj = Number(n)
    none = weakref.getweakrefcount(obj), weakref.getweakrefs(obj)
    one = weakref.ref(obj, print)
    return none, weakref.getweakrefcount(obj), weakref.getweakrefs(obj) == [one], x + n


def dropped_references_call_nothing(x, n):
    log = []
    obj = Number(n)
    first, second = weakref.ref(obj, log.append), weakref.ref(obj, log.append)
    del first
    obj = None
    return len(log), second() is None, x + n


def called_in_c(x, n):
    log = []
    obj, other = Number(n), Number(n)
    refs = [weakref.ref(obj, id), weakref.ref(obj, log.append), weakref.ref(other, type)]
    del obj, other
    return len(log), log[0] is refs[1], x + n


def in_order(x, n):
    log = []
    a, b = Number(n), Number(n + 1)
    refs = [weakref.ref(a, lambda ref: log.append("a")), weakref.ref(b, lambda ref: log.append("b")),
            weakref.ref(a, lambda ref: log.append("a again"))]
    del b
    log.append("between")
    del a
    return log, len(refs), x * n


def locals_die_in_order(x, n):
    log = []

    class Told:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            log.append(self.name)

    def inner():
        c, a, b = Told("c"), Told("a"), Told("b")
        first = weakref.ref(a, lambda ref: log.append("callback"))
        return x + n

    def generated():
        c, a, b = Told("generator c"), Told("generator a"), Told("generator b")
        yield x + 1

    stopped = generated()
    total = inner() + next(stopped)
    log.append("between")
    stopped.close()
    return total, log


def in_a_cycle(x, n):
    log = []
    obj = Number(n)
    obj.itself = obj
    first, second = weakref.ref(obj, lambda ref: log.append(n)), weakref.ref(obj)
    del obj
    gc.collect()
    return log, first() is None, second() is None, x + n


def forwarded(x, n):
    obj = Number(n)
    proxy = weakref.proxy(obj)
    found = [proxy + 1, 2 + proxy, n in proxy, bool(proxy), proxy(3, k=4), len(proxy), proxy[3], proxy < 5]
    for wrong in (lambda: proxy - 1, lambda: proxy * 2, lambda: proxy @ 2):
        try:
            wrong()
        except (TypeError, ValueError) as error:
            found.append(type(error).__name__)
    del proxy[7]
    found.append(obj.n)
    other = weakref.proxy(obj, lambda ref: found.append("dead"))
    del obj
    for wrong in (lambda: bool(proxy), lambda: other + 1, lambda: other()):
        try:
            wrong()
        except ReferenceError as error:
            found.append(str(error))
    return found, x + 1


def ordered(x, n):
    obj = Number(n)
    try:
        return weakref.ref(obj) < weakref.ref(obj), x
    except TypeError as error:
        return str(error), x + n


@pytest.mark.parametrize("function", [called_where_it_dies, counted, dropped_references_call_nothing, in_order, called_in_c,
                                      locals_die_in_order, in_a_cycle, forwarded, ordered])
def test_lifetimes_are_captured_whole(function):
    same_as_eager(function, call(X, 1), call(X, 2))


def test_a_reference_that_outlives_the_call_has_its_own_callback():
    def leaves(x, n):
        log = []
        obj = Number(n)
        return obj, weakref.ref(obj, log.append), log, x + 1

    compiled = stator.compile(leaves, backend="eager")
    for n in (1, 2):
        obj, reference, log, _ = compiled(X, n)
        assert reference.__callback__.__self__ is log and not log
        del obj
        assert log == [reference]


def test_a_callback_that_raises_is_reported_by_cpython(monkeypatch):
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda info: seen.append(str(info.exc_value)))

    def raises(x, n):
        def fail(ref):
            raise ValueError(n)
        obj = Number(n)
        kept = weakref.ref(obj, fail)
        obj = None
        return x + 1, kept() is None

    compiled = stator.compile(raises, backend="eager")
    assert compiled(X, 3)[1] and compiled(X, 4)[1]
    assert seen == ["3", "4"]


def copied(p, x):
    return weakref.ref(copy.copy(p))() is None, weakref.ref(copy.deepcopy(p))() is None, x + 1


def pickled(p, x):
    return weakref.ref(pickle.loads(pickle.dumps(p)))() is None, weakref.ref(pickle.loads(pickle.dumps([p]))[0])() is None, x + 1


def looked_at(p, x):
    made = [Number(1), Number(2), Number(3), Number(4)]
    seen = vars(made[0]), id(made[1]) > 0, hash(made[2]) != 0, repr(made[3]) != ""
    refs = [weakref.ref(each) for each in made]
    table, members = weakref.WeakValueDictionary(enumerate(made)), weakref.WeakSet(made)
    counts = [weakref.getweakrefcount(each) > 0 for each in made]
    made.clear()
    return [each() is None for each in refs], len(table), len(members), counts, len(seen), x + 1


def held_by_a_function_that_died(p, x):
    def make():
        held = Number(5)
        (lambda: held)()
        return weakref.ref(held)

    def default(held=Number(6)):
        return weakref.ref(held)

    ref = default()
    del default
    return make()() is None, ref() is None, x + 1


def held_by_a_function_that_lives(p, x):
    held = Number(7)

    def get():
        return held.n

    ref = weakref.ref(held)
    table = {"key": [ref]}
    del held.n
    held.n = id(ref) and 8
    return table["key"][0]() is not None, get(), x + 1


@pytest.mark.parametrize("fn", [copied, pickled, looked_at, held_by_a_function_that_died, held_by_a_function_that_lives])
def test_objects_die_that_the_trace_has_looked_at(fn):
    same_as_eager(fn, call(Number(1), X), call(Number(2), X), fullgraph=False)
