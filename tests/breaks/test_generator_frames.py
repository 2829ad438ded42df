"""A break inside a running generator is resumed like any other, whoever runs it; and its order of events is eager's."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.breaks.capture import compare
from tests.breaks.natively import natively

X = torch.tensor([1.0, -2.0, 3.0])


def items(x, log):
    """One break, between the first and the second item."""
    try:
        yield x + 1
        stator.graph_break()
        log.append("between")
        yield x * 2
    finally:
        log.append("closed")


class Iterable:
    def __init__(self, x, log):
        self.x, self.log = x, log

    def __iter__(self):
        yield from items(self.x, self.log)


class Iterator:
    def __init__(self, x):
        self.x, self.n = x, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n == 2:
            stator.graph_break()
        if self.n == 4:
            raise StopIteration
        return self.x * self.n


def in_a_loop(x, log):
    total = x
    for item in items(x, log):
        total = total + item
    return total


def listed(x, log):
    return list(items(x, log)), [*items(x, log)][:0]


def in_a_comprehension(x, log):
    return [item + 1 for item in items(x, log)]


def summed(x, log):
    return sum(item * 2 for item in items(x, log))


def in_a_dict(x, log):
    return dict(("ab"[i], item) for i, item in zip((0, 1), list(items(x, log))))


def as_a_tuple(x, log):
    return tuple(items(x, log))


def spread(x, log):
    return torch.stack([*items(x, log)])


def called_with(x, log):
    def add(a, b, *, c):
        return a + b * c

    return add(*items(x, log), c=3)


def unpacked(x, log):
    a, b = items(x, log)
    return a * b


def star_unpacked(x, log):
    a, *rest = items(x, log)
    return a, rest


def extended(x, log):
    found = [x]
    found.extend(items(x, log))
    return found


def joined(x, log):
    return "-".join(str(tuple(item.shape)) for item in items(x, log)), x + 1


def greatest(x, log):
    return max((item for item in items(x, log)), key=lambda item: item.dim()) + 1


def searched(x, log):
    return "no" in (str(item.shape) for item in items(x, log)), x + 1


def any_and_all(x, log):
    return any(item.dim() > 1 for item in items(x, log)), x + 1


def of_a_class(x, log):
    return [item * 2 for item in Iterable(x, log)]


def listed_class(x, log):
    return list(Iterable(x, log))


def of_an_iterator(x, log):
    total = x
    for item in Iterator(x):
        total = total + item
    return total


def listed_iterator(x, log):
    return list(Iterator(x))


def delegated(x, log):
    def outer():
        yield from items(x, log)
        yield x

    return [item + 1 for item in outer()]


def awaited(x, log):
    async def inner(y):
        stator.graph_break()
        return y + 1

    async def outer(y):
        return await inner(y * 2) - 1

    try:
        outer(x).send(None)
    except StopIteration as stop:
        return stop.value


@contextlib.contextmanager
def breaks_on_entry(x, log):
    y = x + 1
    stator.graph_break()
    try:
        yield y * 2
    finally:
        log.append("left")


def entered(x, log):
    with breaks_on_entry(x, log) as y:
        y = y - 1
    return y


@contextlib.contextmanager
def breaks_on_exit(x, log):
    y = x + 1
    try:
        yield y * 2
    except KeyError as error:
        log.append(("caught", sys.exc_info()[1] is error))
        stator.graph_break()
        log.append(("still", sys.exc_info()[1] is error))
    log.append(repr(sys.exc_info()[1]))


def left(x, log):
    with breaks_on_exit(x, log) as y:
        y = y - 1
        raise KeyError("thrown in")
    return y * 3


ONE_BREAK = [in_a_loop, in_a_comprehension, summed, in_a_dict, as_a_tuple, spread, called_with, unpacked, star_unpacked,
             extended, joined, greatest, searched, any_and_all, of_a_class, listed_class, of_an_iterator,
             listed_iterator, delegated, awaited, entered, left]


@pytest.mark.parametrize("program", ONE_BREAK, ids=lambda program: program.__name__)
def test_one_break_gives_two_graphs(program: Any) -> None:
    seen = compare(program, [(X, []), (X + 1, []), (X, [])])
    assert seen.breaks == ["SB009"]
    assert len(seen.graph_modules) == 2
    assert not seen.of(events.Recompile) and not seen.of(events.EagerFallback)


# ---------------------------------------------------------------------- order, exceptions, return values


def dropped_after_a_break(x, log):
    for item in items(x, log):
        x = x + item
        stator.graph_break()
        break
    log.append("after")
    return x


def dropped_by_assignment(x, log):
    generator = items(x, log)
    next(generator)
    stator.graph_break()
    generator = None
    log.append("after")
    return x


def dropped_at_the_end(x, log):
    generator = items(x, log)
    next(generator)
    stator.graph_break()
    log.append("last")
    return x


def held_elsewhere(x, log):
    generator = items(x, log)
    log.append(generator)
    for _ in generator:
        stator.graph_break()
        break
    log.pop()
    log.append("after")
    return x + 1


def closed_with_a_delegate(x, log):
    def inner():
        try:
            yield x + 1
        finally:
            log.append("inner before")
            stator.graph_break()
            log.append("inner after")

    def outer():
        try:
            yield from inner()
        finally:
            stator.graph_break()
            log.append("outer")

    generator = outer()
    first = next(generator)
    generator.close()
    return first


def thrown_into_a_delegate(x, log):
    def inner():
        try:
            yield x + 1
        except KeyError:
            stator.graph_break()
            yield x * 10
        return "returned"

    def outer():
        log.append((yield from inner()))
        raise ValueError("out of the generator")

    generator = outer()
    found = [next(generator), generator.throw(KeyError("k"))]
    try:
        next(generator)
    except ValueError as error:
        log.append((str(error), error.__context__))
    return found


def sent_and_returned(x, log):
    def adding():
        total = 0
        while (got := (yield total)) is not None:
            stator.graph_break()
            total = total + got
        return total

    def outer():
        log.append("begin")
        return (yield from adding())

    generator = outer()
    next(generator)
    generator.send(x)
    generator.send(x * 2)
    try:
        next(generator)
    except StopIteration as stop:
        return stop.value


def handling_around(x, log):
    try:
        raise KeyError("outer")
    except KeyError:
        for item in items(x, log):
            log.append(repr(sys.exc_info()[1]))
            x = x + item
    log.append(sys.exc_info()[1])
    return x


def handling_inside(x, log):
    def generator():
        try:
            raise KeyError("inner")
        except KeyError:
            stator.graph_break()
            log.append(repr(sys.exc_info()[1]))
            yield x
            log.append(repr(sys.exc_info()[1]))
            stator.graph_break()
            yield x + 1

    for item in generator():
        log.append(sys.exc_info()[1])
        x = x + item
    return x


def refers_to_itself(x, log):
    def generator():
        me = held[0]
        yield x + 1
        stator.graph_break()
        try:
            next(me)
        except ValueError as error:
            log.append(str(error))
        yield me.gi_running

    running = generator()
    held = [running]
    return list(running)


def raises_stop_iteration(x, log):
    def generator():
        yield x
        stator.graph_break()
        raise StopIteration("wrong")

    try:
        return list(generator())
    except RuntimeError as error:
        return str(error), repr(error.__cause__)


def raises_out(x, log):
    def generator():
        yield x
        stator.graph_break()
        raise KeyError("out")

    return sum(generator())


def exhausts_the_outer(x, log):
    def first():
        yield x
        stator.graph_break()

    def second():
        for item in first():
            yield item
        log.append("first is over")
        stator.graph_break()
        yield x * 2

    return list(second())


ORDER = [dropped_after_a_break, dropped_by_assignment, dropped_at_the_end, held_elsewhere, closed_with_a_delegate,
         thrown_into_a_delegate, sent_and_returned, handling_around, handling_inside, refers_to_itself,
         raises_stop_iteration, raises_out, exhausts_the_outer]


@pytest.mark.parametrize("program", ORDER, ids=lambda program: program.__name__)
def test_order_exceptions_and_values(program: Any) -> None:
    seen = compare(program, [(X, []), (X + 1, []), (X, [])])
    assert seen.breaks and set(seen.breaks) == {"SB009"}


@pytest.mark.parametrize("program", [*ONE_BREAK, *ORDER], ids=lambda program: program.__name__)
def test_the_native_continuation(program: Any) -> None:
    with natively():
        compare(program, [(X, []), (X + 1, [])], options={"strict": False})


# ---------------------------------------------------------------------- generators from outside


def counting(x, log, n):
    try:
        for i in range(n):
            log.append(i)
            sent = yield x + i
            x = x if sent is None else sent
    except KeyError as error:
        yield repr(error)
    return "end"


def takes_one(generator, x):
    return next(generator) * x


def takes_all(generator, x):
    return sum(generator) * x


def test_a_generator_from_outside_is_run_by_the_graph() -> None:
    for program, counts in ((takes_one, (1, 2)), (takes_all, (1, 1))):
        compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
        for _ in range(2):
            mine: list[Any] = []
            theirs: list[Any] = []
            generator, other = counting(X, mine, 3), counting(X, theirs, 3)
            for _ in range(counts[1]):
                assert compiled(generator, X).equal(program(other, X))
                assert mine == theirs
            assert (generator.gi_frame is None) == (other.gi_frame is None)
            left, right = list(generator), list(other)
            assert len(left) == len(right) and all(a.equal(b) for a, b in zip(left, right, strict=True))
            assert mine == theirs


def test_where_a_generator_stands_is_guarded() -> None:
    compiled = stator.compile(takes_one, backend="eager", fullgraph=True, options={"strict": True})
    log: list[Any] = []
    generator = counting(X, log, 4)
    with events.record() as seen:
        found = [compiled(generator, X) for _ in range(4)]
    assert all(value.equal((X + i) * X) for i, value in enumerate(found)) and log == [0, 1, 2, 3]
    assert [event for event in seen if isinstance(event, events.Recompile)]
    with pytest.raises(StopIteration) as stopped:
        compiled(generator, X)
    assert stopped.value.value == "end"


def test_what_cpython_does_in_between_is_seen() -> None:
    compiled = stator.compile(takes_one, backend="eager", options={"strict": True})
    generator = counting(X, [], 5)
    assert compiled(generator, X).equal(X * X)
    assert generator.send(X + 10).equal(X + 11)
    assert compiled(generator, X).equal((X + 12) * X)
    assert generator.throw(KeyError("k")) == "KeyError('k')"
    with pytest.raises(StopIteration):
        compiled(generator, X)
