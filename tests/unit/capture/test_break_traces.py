"""A graph break that touched nothing continues from the trace that met it."""

from __future__ import annotations

import syslog

import pytest
import torch

import stator
from stator.capture import stages
from tests.comparison import same_as_eager

X = torch.tensor([1.0, -2.0, 3.0])


@stator.disable
def native(*values, **named):
    return [*values, *named.values()]


class Holder:
    @stator.disable
    def method(self, value, *, scale=1):
        return value * scale


def unlisted(x):
    return (x + 1) * syslog.LOG_UPTO(3)


def unlisted_with_argument(x, n):
    y = x + 1
    syslog.LOG_UPTO(n)
    return y * 2


def dropped(x, n):
    kept = native(x, n)
    native(n * 3)
    return x + len(kept)


def explicit(x):
    y = x + 1
    stator.graph_break("here")
    return y * 2


def disabled(x, n):
    return native(x + 1, n)[0] * 2


def with_keywords(x, n):
    return native(x, first=x + 1, second=n)[1] + 1


def bound_method(x, n):
    return Holder().method(x + n, scale=2) + 1


def starred(x, n):
    return native(*[x, n], **{"k": x * 2})[2] + 1


def on_data(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y - 1


def in_callee(x, n):
    def inner(y):
        return [y, native(y, n)[0], y * 3]
    return inner(x + 1)[1] + inner(x + 2)[2]


def under_callback(x):
    return sorted([3, 1, 2], key=lambda i: native(-i)[0]), x + 1


def failing(x):
    y = x + 1
    try:
        native(y, unknown=1).missing
    except AttributeError:
        y = y * 2
    return y


PROGRAMS = {  # program, arguments of its calls, second traces of its first call
    unlisted: ([(X,), (-X,)], 0), dropped: ([(X, 1), (X, 2)], 0), unlisted_with_argument: ([(X, 1), (X, 2), (X, 3)], 0), explicit: ([(X,), (-X,)], 0),
    disabled: ([(X, 1), (X, 2), (X, 2.5)], 0), with_keywords: ([(X, 1), (X, "s")], 0),
    bound_method: ([(X, 1), (X, 2)], 0), starred: ([(X, 1), (X, 2)], None), on_data: ([(X,), (-X,), (X,)], 0),
    in_callee: ([(X, 1), (X, 2)], 0), under_callback: ([(X,), (-X,)], None), failing: ([(X,), (-X,)], 0),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_breaks_equal_eager(program, backend):
    same_as_eager(program, *PROGRAMS[program][0], fullgraph=False, backend=backend)


def second_traces(program, args, monkeypatch):
    steps = []
    original = stages.trace

    def trace(begin, stop_step=-1, stop=None):
        steps.append(stop_step)
        return original(begin, stop_step, stop)

    monkeypatch.setattr(stages, "trace", trace)
    stator.compile(program, backend="eager")(*args)
    return sum(step >= 0 for step in steps)


@pytest.mark.parametrize("program", [each for each, (_, count) in PROGRAMS.items() if count is not None],
                         ids=lambda program: program.__name__)
def test_no_second_trace(program, monkeypatch):
    calls, count = PROGRAMS[program]
    assert second_traces(program, calls[0], monkeypatch) == count


def test_a_break_under_c_code_is_traced_again(monkeypatch):
    assert second_traces(under_callback, (X,), monkeypatch) > 0


@pytest.mark.parametrize("program", [unlisted_with_argument, disabled])
def test_arguments_of_the_native_call_are_not_guarded(program):
    """`n` only passes through: another value is no recompile."""
    compiled = stator.compile(program, backend="eager")
    compiled(X, 1)
    with stator.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(X, 2), program(X, 2))
