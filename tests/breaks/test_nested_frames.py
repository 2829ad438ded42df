"""Python frames below the unsupported instruction of a break are compiled in turn, and change nothing."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0, 3.0])


def inner(x, scale=2):
    return torch.relu(x) * scale + 1


@stator.disable(recursive=False)
def dispatcher(function, *args, **kwargs):
    return function(*args, **kwargs)


def names(seen: Any) -> list[str]:
    return [event.name for event in seen.of(events.CaptureFinished) if event.graph is not None]


def by_keyword(x):
    return dispatcher(inner, x + 1, scale=3) - 1


def variadic(*tensors, extra=1, **named):
    return sum(tensors) * extra + named["last"]


def many_arguments(x):
    return dispatcher(variadic, x, x + 1, extra=2, last=x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x) * self.calls


def test_functions_with_every_kind_of_argument() -> None:
    assert "inner" in names(compare(by_keyword, [(X,), (X,), (X + 1,)]))
    assert "variadic" in names(compare(many_arguments, [(X,), (X,)]))


def test_modules_below_a_break() -> None:
    torch.manual_seed(0)
    net, other = Net(), Net()
    other.load_state_dict(net.state_dict())

    def program(net, x):
        return dispatcher(net, x + 1) * 2

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    with events.record() as log:
        for _ in range(3):
            assert torch.equal(compiled(net, X), program(other, X))
    captured = [event.name for event in log if isinstance(event, events.CaptureFinished) and event.graph is not None]
    assert "Net.forward" in captured and net.calls == other.calls == 3


def squares(n):
    return n * n


def test_functions_without_tensors_and_without_graphs_are_left_alone() -> None:
    def program(x, log):
        log.append(dispatcher(squares, 3))
        log.append(dispatcher(shape_of, x))
        return x + 1

    seen = compare(program, [(X, []), (X, []), (X, []), (X, [])])
    started = [event.name for event in seen.of(events.CaptureStarted)]
    assert "squares" not in started
    assert started.count("shape_of") == 1, "one capture without a graph is enough"


def shape_of(x):
    return tuple(x.shape)


def recursive(x, n):
    stator.graph_break()
    return x if n == 0 else dispatcher(recursive, x + 1, n - 1)


def test_recursion_through_breaks_ends() -> None:
    seen = compare(recursive, [(X, 12), (X, 12)], recompile_limit=4)
    assert len(seen.of(events.CaptureStarted)) < 60


def test_a_function_that_calls_itself_natively_is_not_entered_for_ever() -> None:
    def program(x):
        return dispatcher(program_again, x)

    def program_again(x):
        return dispatcher(inner, x)

    compare(program, [(X,), (X,)])


def test_functions_made_again_and_again() -> None:
    def program(x):
        total = x
        for n in range(20):
            total = total + dispatcher(lambda y, n=n: y * n, x)
        return total

    seen = compare(program, [(X,)], recompile_limit=64)
    assert len([name for name in names(seen) if "lambda" in name]) <= 8


def test_limits_apply_to_nested_functions() -> None:
    def program(x, name):
        return dispatcher(named, x, name)

    compiled = stator.compile(program, backend="eager", recompile_limit=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("a", "bb", "ccc", "dddd"):
            assert compiled(X, name).equal(X + len(name))
    assert any("recompile limit: named" in str(warning.message) for warning in caught)


def named(x, name):
    return x + len(name)


def fails(x):
    y = x + 1
    if y.shape[0] == 3:
        raise ValueError("three")
    return y


def catches(x):
    try:
        dispatcher(fails, x)
    except ValueError as error:
        return str(error), x * 2


@pytest.mark.parametrize("program", [catches, lambda x: dispatcher(fails, x)])
def test_exceptions_pass_through(program: Any) -> None:
    compare(program, [(X,), (X,), (torch.ones(4),)])


def test_generators_closures_and_wrappers_run_natively_and_what_they_call_is_compiled() -> None:
    def closure(x):
        return inner(x) + len(seen_by_closure)

    seen_by_closure = [1]

    def items(x):
        yield inner(x)
        yield inner(x * 2)

    @functools.wraps(inner)
    def wrapped(x):
        return inner(x)

    def program(x):
        return dispatcher(closure, x), list(dispatcher(items, x)), dispatcher(wrapped, x)

    assert "inner" in names(compare(program, [(X,), (X,)]))


def test_disabled_functions_below_are_left_alone() -> None:
    off = stator.disable(inner)

    def program(x):
        return dispatcher(off, x + 1)

    assert "inner" not in names(compare(program, [(X,), (X,)]))


def test_sort_keys_and_other_callbacks_of_c_code() -> None:
    def key(x):
        return (x * 2).sum().numpy().item()

    def program(xs):
        return sorted(xs, key=key)

    compare(program, [([X, X - 5, X + 2],), ([X, X - 5, X + 2],)])


def test_two_threads_in_breaks_at_once() -> None:
    compiled = stator.compile(by_keyword, backend="eager", options={"strict": True})
    expected = by_keyword(X)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            if not compiled(X).equal(expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_option_turns_it_off() -> None:
    seen = compare(by_keyword, [(X,), (X,)], options={"compile_nested": False})
    assert "inner" not in names(seen) and len(seen.graph_modules) == 2
