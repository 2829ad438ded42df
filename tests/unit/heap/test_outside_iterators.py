"""Iterators from outside beside the containers that they walk, and beside caches that advance them."""

from __future__ import annotations

import array
import collections
import copy
import functools
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.comparison import call, same_as_eager

X = torch.arange(3.0)


def drained(it: Any) -> Any:
    try:
        return list(itertools.islice(it, 6))
    except RuntimeError as error:
        return str(error)


def compare(fn: Callable[..., Any], *makers: Callable[[], tuple[Any, ...]], **options: Any) -> list[Any]:
    """Each call compiled beside the same call made eagerly: the result, and what is left of iterator and container."""
    compiled = stator.compile(fn, backend="eager", options={"strict": True}, **options)
    with events.record() as log:
        for make in makers:
            seen = []
            for subject in (fn, compiled):
                it, container = make()
                seen.append((repr(subject(it, container, X)), repr(container), drained(it)))
            assert seen[0] == seen[1]
    return log


def add_and_take(it: Any, container: Any, x: Any) -> Any:
    if type(container) is dict:
        container["new"] = 9
    elif type(container) is set:
        container.add(99)
    else:
        container.append(5)
    try:
        return next(it), next(it, None), x + 1
    except RuntimeError as error:
        return str(error), x + 2


WALKED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1], iter), "reversed list": (lambda: [1, 2], reversed), "set": (lambda: {1, 2, 3}, iter),
    "keys": (lambda: {"a": 1, "b": 2}, iter), "items": (lambda: {"a": 1, "b": 2}, lambda d: iter(d.items())),
    "values": (lambda: {"a": 1, "b": 2}, lambda d: iter(d.values())), "reversed dict": (lambda: {"a": 1, "b": 2}, reversed),
    "deque": (lambda: collections.deque([1, 2]), iter), "array": (lambda: array.array("l", [1, 2]), iter),
    "enumerate": (lambda: [1], enumerate), "zip": (lambda: [1], lambda xs: zip(xs, (3, 4), strict=False)),
    "cycle": (lambda: [1, 2], itertools.cycle), "enumerate a dict": (lambda: {"a": 1, "b": 2}, enumerate),
    "zip a dict": (lambda: {"a": 1, "b": 2}, lambda d: zip(d, [1, 2], strict=False)),
    "enumerate a set": (lambda: {1, 2}, enumerate),
}  # fmt: skip


@pytest.mark.parametrize("kind", WALKED)
def test_what_is_changed_is_or_is_not_what_is_walked(kind: str) -> None:
    make, walk = WALKED[kind]

    def its_own() -> tuple[Any, Any]:
        container = make()
        return walk(container), container

    def another() -> tuple[Any, Any]:
        return walk(make()), make()

    compare(add_and_take, another, another, its_own, another)
    compare(add_and_take, its_own, its_own, another, its_own)


def test_a_list_that_is_only_read_is_walked_on() -> None:
    def fn(it: Any, xs: Any, x: Any) -> Any:
        return xs[0], next(it), len(xs), next(it), x + 1

    def make() -> tuple[Any, Any]:
        xs = [1, 2, 3]
        return iter(xs), xs

    compare(fn, make, make, fullgraph=True)


def test_a_dict_that_changed_under_its_iterator_before_the_call() -> None:
    def fn(it: Any, d: Any, x: Any) -> Any:
        try:
            return next(it), x
        except (RuntimeError, StopIteration) as error:
            return type(error).__name__, str(error), x

    def walked(taken: int, *added: int) -> Callable[[], tuple[Any, Any]]:
        def make() -> tuple[Any, Any]:
            d = {1: 2, 3: 4}
            it = iter(d)
            assert len(list(itertools.islice(it, taken))) == taken
            d.update(dict.fromkeys(added))
            return it, d
        return make

    compare(fn, walked(0, 5), walked(2), walked(2, 5), walked(1))
    compare(fn, walked(2), walked(0, 5), walked(2, 5), walked(2))


def moves_then_changes(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fn(it: Any, d: Any, x: Any) -> Any:
        try:
            return step(it, d), x + 1
        except (RuntimeError, StopIteration) as error:
            return type(error).__name__, str(error), x + 2
    return fn


def regrown(it: Any, d: Any) -> Any:
    del d[3]
    d["new"] = 1
    return next(it)


def spoilt(it: Any, d: Any) -> Any:
    d["new"] = 1
    try:
        next(it)
    except RuntimeError:
        del d["new"]
    return len(d)


@pytest.mark.parametrize("walk", [iter, reversed, lambda d: iter(d.values()), lambda d: iter(d.items())])
@pytest.mark.parametrize("step", [
    lambda it, d: (list(it), d.clear()), lambda it, d: (list(it), d.pop(1)), lambda it, d: (next(it), d.update(new=1)),
    lambda it, d: (next(it), d.pop(1), d.update(new=1)), regrown, spoilt, lambda it, d: [d.pop(k, 0) for k in it],
], ids=["all, clear", "all, pop", "one, grow", "one, regrow", "regrow, one", "spoil", "pop each"])
def test_a_dict_changes_after_its_iterator_was_moved(step: Callable[[Any, Any], Any], walk: Any) -> None:
    """The iterator is moved while the dict is as it was; afterwards it would raise, or give other items."""
    def walked(taken: int) -> Callable[[], tuple[Any, Any]]:
        def make() -> tuple[Any, Any]:
            d = {1: 2, 3: 4, 5: 6}
            it = walk(d)
            assert len(list(itertools.islice(it, taken))) == taken
            return it, d
        return make

    compare(moves_then_changes(step), walked(0), walked(1), walked(2), walked(3))


CONTAINERS: dict[str, Callable[[], Any]] = {
    "deque": lambda: collections.deque([1, 2]), "buffer": lambda: bytearray(b"ab"), "array": lambda: array.array("i", [1, 2]),
    "enumerate": lambda: enumerate([1, 2]), "map": lambda: map(abs, [1, 2]), "cycle": lambda: itertools.cycle([1, 2]),
    "tuple": lambda: type("T", (tuple,), {})([1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTAINERS)
def test_iter_of_an_outside_object(kind: str) -> None:
    def fn(xs: Any, x: Any) -> Any:
        it = iter(xs)
        return next(it), next(it), it is xs, x + 1

    same_as_eager(fn, lambda: call(CONTAINERS[kind](), X), graphs=1)


def test_a_loop_over_a_cycle_is_left_by_the_program() -> None:
    def fn(it: Any, x: Any) -> Any:
        out = []
        for k in it:
            out.append(x * k)
            if len(out) == 5:
                return out

    same_as_eager(fn, lambda: call(itertools.cycle([1, 2, 3]), X), graphs=1)


@pytest.mark.parametrize("make", [
    lambda: itertools.accumulate([1, 2, 3], lambda a, b: a + b, initial=10), lambda: itertools.accumulate([1, 2, 3]),
    lambda: enumerate([4, 5, 6], sys.maxsize + 1), lambda: enumerate((n for n in (4, 5, 6)), sys.maxsize + 1),
    lambda: enumerate(map(abs, [4, 5, 6]), sys.maxsize + 1), lambda: enumerate(map(abs, [4, 5, 6]), sys.maxsize - 1),
])  # fmt: skip
def test_iterators_whose_state_is_not_told_in_full(make: Any) -> None:
    same_as_eager(lambda it, x: (next(it), next(it), x + 1), lambda: call(make(), X), fullgraph=False)


def test_a_cached_function_that_advances_what_was_advanced_before() -> None:
    for steps in (1, 0):
        it = iter([7] * 20)  # the same items to come, wherever it stands

        @functools.lru_cache
        def cached(n: int, it: Any = it) -> int:
            next(it)
            return n

        def program(x: Any, it: Any = it, cached: Any = cached, steps: int = steps) -> Any:
            for _ in range(steps):
                next(it)
            return x * cached(1)

        compiled = stator.compile(program, backend="eager", options={"strict": True})
        compiled(X)
        compiled(X)  # a hit: nothing but the program's own step
        assert len(list(copy.copy(it))) == 20 - 2 * steps - 1


def test_a_cached_function_that_writes_to_a_buffer_that_was_written_before() -> None:
    buffer = bytearray(2)

    @functools.lru_cache
    def cached(n: int) -> int:
        buffer[0] ^= 1
        return n

    def program(x: Any) -> Any:
        buffer[1] ^= 1
        return x * cached(1)

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    compiled(X)
    assert bytes(buffer) == b"\1\1"
    buffer[:] = bytes(2)
    compiled(X)
    assert bytes(buffer) == b"\0\1"


def raised() -> ValueError:
    try:
        raise ValueError(1)
    except ValueError as error:
        return error


class Catching:
    def __enter__(self) -> None:
        pass

    def __exit__(self, cls: Any, error: Any, traceback: Any) -> bool:
        self.names = names_in(traceback)
        return True


def names_in(traceback: Any) -> list[str]:
    found = []
    while traceback is not None:
        found.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    return found


def test_the_traceback_of_an_exception_that_was_raised_before() -> None:
    def caught(error: Any, x: Any) -> Any:
        try:
            raise error
        except ValueError:
            return names_in(sys.exc_info()[2]), x + 1

    def in_a_block(error: Any, x: Any) -> Any:
        block = Catching()
        with block:
            raise error
        return block.names, x + 1

    for fn in (caught, in_a_block):
        for first, second in ((raised, lambda: ValueError(2)), (lambda: ValueError(2), raised)):
            compiled = stator.compile(fn, backend="eager", options={"strict": True})
            for make in (first, first, second, first):
                assert compiled(make(), X)[0] == fn(make(), X)[0]


def test_only_what_may_walk_a_container_is_asked_whether_it_does() -> None:
    def fn(it: Any, xs: Any, x: Any) -> Any:
        xs.append(5)
        return next(it), x + 1

    for make, asked in ((lambda: iter([1, 2]), True), (lambda: iter((1, 2)), False)):
        compiled = stator.compile(fn, backend="eager")
        compiled(make(), [1], X)
        ((_, _, tag),) = compiled.entries()
        assert any("walks(" in guard.text() for guard in tag.guards) is asked


class Shelf:
    def __init__(self, books: list[int]) -> None:
        self.books = books

    def __iter__(self) -> Any:
        return iter(self.books)


# Iterators whose C code looks into the items that it takes, over lists that nobody has read yet.
LOOKING: dict[str, Callable[[int], Any]] = {
    "chain": lambda n: itertools.chain([7, n], (2, n)),
    "chain of lists": lambda n: itertools.chain([[7], [n]], [[n]]),
    "chain of an iterable of its own": lambda n: itertools.chain(Shelf([1, n]), [9]),
    "chained lists": lambda n: itertools.chain.from_iterable([[1, n], [3]]),
    "chained chain": lambda n: itertools.chain.from_iterable(itertools.chain([[1, n]], [[3]])),
    "chained generator": lambda n: itertools.chain.from_iterable(shelf.books for shelf in [Shelf([1, n]), Shelf([3])]),
    "chained calls": lambda n: itertools.chain.from_iterable(map(vars, [Shelf([1, n])])),
    "sums": lambda n: itertools.accumulate([[1], [n], [2]]),
    "sums of a generator": lambda n: itertools.accumulate(shelf.books for shelf in [Shelf([1, n]), Shelf([3])]),
    "those that are true": lambda n: filter(None, [[1], [1] * n, []]),
    "those that are false": lambda n: itertools.filterfalse(None, [[1], [1] * n, []]),
    "chosen": lambda n: itertools.compress([1, 2, 3], [[1], [1] * n, []]),
    "arguments": lambda n: itertools.starmap(max, [[1, n], [2, 3]]),
}


@pytest.mark.parametrize("kind", LOOKING)
def test_items_that_c_code_looks_into_are_read(kind: str) -> None:
    def listed(it: Any, container: Any, x: Any) -> Any:
        return repr(list(it)), x + 1

    def after_one(it: Any, container: Any, x: Any) -> Any:
        first = next(it, None)
        stator.graph_break()
        return first, repr(tuple(it)), x + 1

    def made(n: int) -> Callable[[], tuple[Any, Any]]:
        return lambda: (LOOKING[kind](n), None)

    for fn in (listed, after_one):
        compare(fn, made(0), made(0), made(1), made(2), made(0))


def test_a_chain_made_by_a_native_step_is_read() -> None:
    """Once the compiler has given up on the items, `chain` runs natively, and its result comes from outside."""
    def fn(items: list[int]) -> str:
        return repr(list(itertools.chain(items, (2,))))

    compiled = stator.compile(fn, backend="eager", recompile_limit=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(8):
            assert compiled([7, 5, k]) == fn([7, 5, k])


@pytest.mark.parametrize("make", [lambda: itertools.pairwise([1, 2, 3, 4]), lambda: itertools.tee([1, 2, 3, 4])[0]])
def test_iterators_that_hold_items_are_captured_whole(make: Callable[[], Any]) -> None:
    def two(it: Any, x: torch.Tensor) -> Any:
        return x + 1, next(it), next(it)

    def begun() -> Any:
        it = make()
        next(it)
        return it

    expected, left = two(first := begun(), X), begun()
    got = stator.compile(two, backend="eager", fullgraph=True)(left, X)
    assert repr(got) == repr(expected) and list(left) == list(first)


@pytest.mark.parametrize("take", [lambda it: [value for _, value in it], lambda it: [next(it)[1]]], ids=["all", "one"])
def test_a_dict_that_grows_behind_its_iterator(take: Callable[[Any], Any]) -> None:
    """The user's iterator is moved while the dict is as the program walked it."""
    def fn(table: dict[str, float], x: torch.Tensor) -> Any:
        it = iter(table.items())
        first = next(it)
        stator.graph_break()
        found = take(it)
        table["new"] = x + first[1]
        return found, drained(it)

    for cls in (dict, collections.OrderedDict):
        same_as_eager(fn, call(cls(a=1.0, b=2.0, c=3.0), X), call(cls(a=4.0, b=5.0), X),
                      fullgraph=False)
