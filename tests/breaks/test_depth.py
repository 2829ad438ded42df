"""One break n calls deep gives exactly two graphs, whatever the calls go through; loops cost one body."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0, 3.0])


def through_functions(depth):
    def call(x, n):
        x = x + n
        if n == 0:
            stator.graph_break()
        else:
            x = call(x * 2, n - 1)
        return x - 1

    return lambda x: call(x, depth)


class Node:
    def __init__(self, inner):
        self.inner = inner

    def run(self, x):
        x = x + 1
        if self.inner is None:
            stator.graph_break()
        else:
            x = self.inner.run(x)
        return x * 2


def through_methods(depth):
    node = Node(None)
    for _ in range(depth):
        node = Node(node)
    return lambda x: node.run(x)


def through_closures(depth):
    def last(x):
        stator.graph_break()
        return x + 1

    made = last
    for level in range(depth):
        def outer(x, inner=made, level=level):
            def run(y):
                return inner(y * 2) + level

            return run(x)

        made = outer
    program = made
    return lambda x: program(x) - 1


def through_generators(depth):
    def items(x, n):
        if n == 0:
            yield x + 1
            stator.graph_break()
            yield x + 2
        else:
            yield from items(x * 2, n - 1)

    def program(x):
        total = x + 0
        for item in items(x, depth):
            total = total + item
        return total * 2

    return program


def through_generator_loops(depth):
    def items(x, n):
        if n == 0:
            yield x + 1
            stator.graph_break()
            yield x + 2
        else:
            for item in items(x * 2, n - 1):
                yield item + n

    def program(x):
        total = x + 0
        for item in items(x, depth):
            total = total + item
        return total * 2

    return program


@contextlib.contextmanager
def scaled(log, n):
    log.append(("enter", n))
    try:
        yield n + 1
    finally:
        log.append(("exit", n))


def through_contextmanagers(depth):
    def call(x, n, log):
        with scaled(log, n) as factor:
            x = x * factor
            if n == 0:
                stator.graph_break()
            else:
                x = call(x, n - 1, log)
            x = x + factor
        return x

    def program(x):
        log: list[Any] = []
        return call(x, depth, log), log

    return program


class Layer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = x * self.weight
        if self.inner is None:
            stator.graph_break()
        else:
            x = self.inner(x)
        return x + 1


def through_modules(depth):
    layer = Layer(None)
    for _ in range(depth):
        layer = Layer(layer)
        layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        layer.register_forward_hook(lambda module, args, result: result * 2)
    return lambda x: layer(x)


WAYS = [through_functions, through_methods, through_closures, through_contextmanagers, through_modules,
        through_generators, through_generator_loops]


@pytest.mark.parametrize("depth", range(1, 7))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_two_graphs(way: Any, depth: int) -> None:
    seen = compare(way(depth), [(X,), (X + 1,), (X,)])
    assert seen.breaks == ["SB009"]
    assert len(seen.graph_modules) == 2
    assert not seen.of(events.Recompile) and not seen.of(events.EagerFallback)


# ---------------------------------------------------------------------- suspended generators across breaks


def items(x, log):
    try:
        yield x + 1
        log.append("between")
        sent = yield x + 2
        yield x * (sent or 1)
    finally:
        log.append("closed")


def exhausted_after(x, log):
    generator = items(x, log)
    total = next(generator)
    stator.graph_break()
    for item in generator:
        total = total + item
    return total, next(generator, None)


def advanced_between(x, log):
    generator = items(x, log)
    total = next(generator)
    stator.graph_break()
    total = total + next(generator)
    stator.graph_break()
    total = total + generator.send(3)
    return total, list(generator)


def closed_after(x, log):
    generator = items(x, log)
    total = next(generator)
    stator.graph_break()
    generator.close()
    return total, list(generator)


def thrown_into(x, log):
    generator = items(x, log)
    total = next(generator)
    stator.graph_break()
    try:
        generator.throw(KeyError("k"))
    except KeyError as error:
        log.append(str(error))
    return total


def not_started(x, log):
    generator = items(x, log)
    stator.graph_break()
    return list(generator)


def left_alone(x, log):
    generator = items(x, log)
    next(generator)
    stator.graph_break()
    return x + 1, generator.gi_code.co_name


def broken_in_every_iteration(x, log):
    for item in items(x, log):
        x = x + item
        stator.graph_break()
    return x


@contextlib.contextmanager
def swallowing(log):
    try:
        yield 5
    except ValueError as error:
        log.append(str(error))


def raises_in_a_with(x, log):
    with swallowing(log) as n:
        x = x + n
        stator.graph_break()
        raise ValueError("swallowed")
    return x * 2


SUSPENDED = [exhausted_after, advanced_between, closed_after, thrown_into, not_started, left_alone,
             broken_in_every_iteration, raises_in_a_with]


@pytest.mark.parametrize("program", SUSPENDED, ids=lambda program: program.__name__)
def test_suspended_generators_go_on(program: Any) -> None:
    seen = compare(program, [(X, []), (X + 1, []), (X, [])])
    assert not seen.of(events.EagerFallback)


def test_the_generator_of_the_user_is_over_when_the_graph_ran_it_to_its_end() -> None:
    kept: list[Any] = []

    def program(x, log):
        generator = items(x, log)
        kept.append(generator)
        total = next(generator)
        stator.graph_break()
        return total + sum(generator)

    log: list[Any] = []
    expected = program(X, [])
    assert stator.compile(program, backend="eager")(X, log).equal(expected)
    assert log == ["between", "closed"]
    assert kept[-1].gi_frame is None and list(kept[-1]) == []


# ---------------------------------------------------------------------- loops


def deepest_python_stack(x, log):
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    log.append(count)
    return x


deepest_python_stack = stator.disable(deepest_python_stack)


def thousand(x, n):
    for _ in range(n):
        x = x + 1
        stator.graph_break()
        x = x * 1.0
    return x


def thousand_while(x, n):
    while n > 0:
        n -= 1
        x = x + 1
        stator.graph_break()
    return x


def watched(x, log):
    for _ in range(40):
        x = deepest_python_stack(x + 1, log)
    return x


def test_a_thousand_iterations_compile_the_body_once() -> None:
    seen = compare(thousand, [(X, 1000), (X, 1000)])
    # Before the first break; from break to break; and the end of the range, which its iterator tells.
    assert len(seen.of(events.CaptureStarted)) <= 4
    assert not seen.of(events.EagerFallback) and not seen.of(events.CacheLimit)
    assert len(seen.graph_modules) <= 3


def test_a_counter_in_a_while_loop_becomes_symbolic_or_is_limited() -> None:
    seen = compare(thousand_while, [(X, 50)], recompile_limit=8)
    assert len(seen.of(events.CaptureStarted)) <= 12


def test_no_stack_growth() -> None:
    log: list[int] = []
    stator.compile(watched, backend="eager", options={"strict": True})(X, log)
    assert len(log) == 40 and len(set(log[2:])) == 1


def test_unchanged_values_never_recompile_and_changed_ones_do() -> None:
    def program(x, n):
        y = x + 1
        stator.graph_break()
        return y * n

    compiled = stator.compile(program, backend="eager", dynamic=False)
    compiled(X, 2)
    with events.record() as log:
        for _ in range(5):
            compiled(X, 2)
    assert log == []
    with events.record() as log:
        assert compiled(X, 3).equal((X + 1) * 3)
    assert [event for event in log if isinstance(event, events.Recompile)]


# ---------------------------------------------------------------------- tracebacks


def raises_after_a_break(x):
    y = x + 1
    stator.graph_break()
    return fails_below(y)


def fails_below(y):
    z = y * 2
    stator.graph_break()
    raise KeyError("below")


def raises_in_the_instruction(x):
    return native_failure(x + 1)


@stator.disable(recursive=False)
def native_failure(x):
    return fails_below(x)


@pytest.mark.parametrize("program", [raises_after_a_break, raises_in_the_instruction], ids=lambda p: p.__name__)
def test_tracebacks_show_the_users_frames(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    found = []
    for call in (program, compiled, compiled):
        with pytest.raises(KeyError) as caught:
            call(X)
        frames = traceback.extract_tb(caught.value.__traceback__)[1:]
        found.append([(frame.name, frame.lineno, frame.filename) for frame in frames])
    assert found[0] == found[1] == found[2]
