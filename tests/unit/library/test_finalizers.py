"""Deaths of objects: finalizers of classes made inside, subclasses of a class made inside."""

from __future__ import annotations

import gc

import torch

import stator
from tests.comparison import call, same_as_eager


def ordered_deaths(x):
    out: list = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            out.append(self.name)

    def inner():
        held = Noted("local")
        out.append("inside")
        return held.name

    Noted("temporary")
    out.append(inner())
    pair = [Noted("first"), Noted("second")]
    pair.clear()
    out.append("cleared")
    again = Noted("old")
    again = Noted("new")
    out.append("replaced")
    del again
    try:
        raise ValueError(Noted("raised"))
    except ValueError:
        out.append("handled")
    return x + len(out), out


def counted_deaths(x):
    class Counted:
        left = 0

        def __init__(self):
            Counted.left += 1

        def __del__(self):
            Counted.left -= 1

    made = [Counted() for _ in range(3)]
    before = Counted.left
    made.pop()
    return x + before, Counted.left, made.clear(), Counted.left


def kept_by_a_closure(x):
    out = []

    class Noted:
        def __del__(self):
            out.append("dead")

    def make():
        held = Noted()
        return (lambda: held)() is held
    return make(), out, x + len(out)


def alive_at_the_end(x, log):
    class Noted:
        def __del__(self):
            log.append("dead")
    held = Noted()
    log.append("made")
    return x + len(log), held is None


def breaks_inside(x, log):
    class Noted:
        def __del__(self):
            log.append(len(gc.get_objects()) > 0)
    Noted()
    return x + len(log)


def changed_later(x, log):
    class Noted:
        def __del__(self):
            log.append("first")
    held = Noted()
    Noted.__del__ = lambda self: log.append("second")
    del held
    return x + len(log)


def resurrected(x, log):
    class Noted:
        def __del__(self):
            log.append(self)
    Noted()
    return x + len(log)


def test_finalizers_of_classes_made_inside() -> None:
    for program in (ordered_deaths, counted_deaths):
        same_as_eager(program, call(torch.ones(2)), call(torch.zeros(3)))
    same_as_eager(kept_by_a_closure, call(torch.ones(2)), fullgraph=False)
    for program in (alive_at_the_end, breaks_inside, changed_later):
        same_as_eager(program, call(torch.ones(2), []), call(torch.zeros(2), [1]), fullgraph=False)
    log: list = []
    stator.compile(resurrected, backend="eager")(torch.ones(2), log)
    assert len(log) == 1
    stator.compile(resurrected, backend="eager")(torch.ones(2), log)
    assert len(log) == 2


def test_subclasses_of_a_class_made_inside() -> None:
    def program(x):
        class Base: ...
        class One(Base): ...
        class Two(One): ...
        return x + len(Base.__subclasses__()), [each.__name__ for each in One.__subclasses__()]
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(2)))
