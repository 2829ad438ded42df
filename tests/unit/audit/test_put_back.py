"""Changes of an audited call are made once: the eager run beside it is undone, whatever it has changed."""

from __future__ import annotations

import collections
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

import stator
from stator import events
from stator.audit.reach import reach

X = torch.tensor([1.0, -2.0, 3.0])
MEMBERS = {3, 4}
CASES: dict[str, Callable[[], tuple[Any, Any, Any]]] = {}


class Slotted:
    __slots__ = ("n", "late")

    def __init__(self) -> None:
        self.n = 1


class Counted:
    made = 0


def case(make: Callable[[], tuple[Any, Any, Any]]) -> None:
    """A function that makes a program, what it is called with after the tensor, and a look at what it has changed."""
    CASES[make.__name__] = make


@case
def cells() -> tuple[Any, Any, Any]:
    n, before = 0, []

    def program(x: Any) -> Any:
        nonlocal n
        n += 1
        before.append(n)
        return x + n

    return program, (), lambda: (n, before)


@case
def an_empty_cell() -> tuple[Any, Any, Any]:
    def program(x: Any) -> Any:
        nonlocal late
        try:
            late = late + 1
        except NameError:
            late = 1
        return x + late

    late = 0
    del late
    return program, (), lambda: late


@case
def sets() -> tuple[Any, Any, Any]:
    def program(x: Any, xs: set[int]) -> Any:
        seen = 7 in xs
        xs.add(7)
        MEMBERS.discard(3) if 3 in MEMBERS else MEMBERS.add(3)
        return x + len(xs) + seen + len(MEMBERS)

    xs = {1, 2}
    MEMBERS.update((3, 4))
    return program, (xs,), lambda: (xs, MEMBERS)


@case
def dicts() -> tuple[Any, Any, Any]:
    def program(x: Any, d: Any, ordered: Any) -> Any:
        d["a"] = d.pop("a") + 1
        ordered.move_to_end("p")
        ordered["n"] = ordered.get("n", 0) + 1
        return x * d["a"] + ordered["n"]

    d, ordered = {"a": 1, "b": 2}, collections.OrderedDict(p=1, q=2)
    return program, (d, ordered), lambda: (list(d.items()), list(ordered.items()))


@case
def deques() -> tuple[Any, Any, Any]:
    def program(x: Any, q: Any) -> Any:
        q.append(len(q))
        return x + q.popleft()

    q = collections.deque([1, 2, 3], maxlen=4)
    return program, (q,), lambda: (list(q), q.maxlen)


@case
def slots() -> tuple[Any, Any, Any]:
    def program(x: Any, o: Slotted) -> Any:
        o.n += 1
        o.late = getattr(o, "late", 0) + 1
        return x + o.n + o.late

    o = Slotted()
    return program, (o,), lambda: (o.n, o.late)


@case
def classes() -> tuple[Any, Any, Any]:
    def program(x: Any) -> Any:
        Counted.made += 1
        Counted.last = getattr(Counted, "last", 0) + Counted.made
        return x + Counted.made + Counted.last

    Counted.made, Counted.last = 0, 0
    del Counted.last
    return program, (), lambda: (Counted.made, Counted.last)


@case
def functions() -> tuple[Any, Any, Any]:
    def helper(log: list[int] = [], *, more: dict[str, int] = {"n": 0}) -> int:  # noqa: B006  what is shared is the point
        log.append(1)
        more["n"] += len(log)
        helper.calls = getattr(helper, "calls", 0) + 1
        return more["n"] + helper.calls

    def program(x: Any) -> Any:
        return x + helper()

    return program, (), lambda: (helper.__defaults__, helper.__kwdefaults__, helper.calls)


@case
def arrays() -> tuple[Any, Any, Any]:
    def program(x: Any, a: Any, raw: bytearray) -> Any:
        a += 1
        raw[0] += 1
        return x + float(a[0]) + raw[0]

    a, raw = numpy.arange(3), bytearray(b"abc")
    return program, (a, raw), lambda: (a.tolist(), bytes(raw))


@case
def random_streams() -> tuple[Any, Any, Any]:
    def program(x: Any, own: Any, of_numpy: Any, of_torch: Any) -> Any:
        return x + own.random() + float(of_numpy.random()) + torch.rand(3, generator=of_torch) + random.random()

    own, of_numpy, of_torch = random.Random(3), numpy.random.default_rng(3), torch.Generator().manual_seed(3)
    return program, (own, of_numpy, of_torch), lambda: (own.random(), of_numpy.random(), of_torch.get_state().tolist())


@case
def iterators() -> tuple[Any, Any, Any]:
    def program(x: Any, items: Iterator[int], others: Iterator[int]) -> Any:
        return x + next(items) + next(others)

    # From 3.12 on an iterator over a range can only go forward.
    items, others = iter([1, 2, 3, 4, 5]), iter(range(10) if sys.version_info < (3, 12) else (5, 6, 7, 8))
    return program, (items, others), lambda: (list(items), list(others))


@case
def tensors() -> tuple[Any, Any, Any]:
    def program(x: Any, t: Any, leaf: Any, flag: Any) -> Any:
        t.add_(1)
        t.tag = getattr(t, "tag", 0) + 1
        flag.requires_grad_(not flag.requires_grad)
        (leaf * t).sum().backward()
        return x + t + t.tag + leaf.detach()

    t, leaf, flag = torch.zeros(3), torch.ones(3, requires_grad=True), torch.zeros(1)
    return program, (t, leaf, flag), lambda: (t.tolist(), t.tag, leaf.grad.tolist(), flag.requires_grad)


@case
def views() -> tuple[Any, Any, Any]:
    def program(x: Any, t: Any) -> Any:
        t.unsqueeze_(0)
        t.data = t.data * 2
        return x + t.sum() + t.dim()

    t = torch.ones(3)
    return program, (t,), lambda: (t.tolist(), t.shape)


@pytest.mark.parametrize("name", CASES)
def test_each_call_happens_once(name: str) -> None:
    outcomes = []
    for audited in (False, True):
        program, args, look = CASES[name]()
        fn = stator.compile(program, backend="eager", options={"audit": 1, "strict": True}) if audited else program
        random.seed(5)
        torch.manual_seed(5)
        with events.record() as log:
            values = [fn(X.clone(), *args).tolist() for _ in range(3)]
        outcomes.append((values, look()))
        if audited:
            told = [each for each in log if isinstance(each, (events.AuditDifference, events.AuditSkipped))]
            assert told == []
            assert [each.differences for each in log if isinstance(each, events.Audited)] == [0, 0, 0]
    assert outcomes[0] == outcomes[1]


class Base(torch.nn.Linear):
    rates = [1]

    def forward(self, x: Any) -> Any:
        self.rates.append(len(self.rates))
        return super().forward(x)


class Bare:
    pass


def test_classes_of_the_program_are_looked_at_and_no_others() -> None:
    module, bare = Base(3, 3), Bare()
    found = reach(module.forward, (module, bare, collections.Counter("a"), torch.nn.ReLU()), {})
    classes = {each.value for each in found.values() if isinstance(each.value, type)}
    assert {Base, Bare} <= classes
    assert not classes & {torch.nn.Linear, torch.nn.Module, torch.nn.ReLU, collections.Counter, torch.Tensor, type, dict}
    assert any(each.value is Base.rates for each in found.values())
