"""Audit mode: equal calls pass in silence, injected faults are found, and nothing of the program is disturbed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.emit.effects import write_back
from stator.guards.guard import Kind
from stator.heap.heap import Heap

COUNT = 0
SCALE = 2.0
X = torch.tensor([1.0, -2.0, 3.0])


class Holder:
    made = 0
    __slots__ = ("n", "parts", "__dict__")

    def __init__(self) -> None:
        self.n, self.parts, self.seen = 0, [1], {"a": 1}


def busy(x, holder, xs, names):
    """Changes everything that can be changed."""
    global COUNT
    COUNT += 1
    holder.n += 1
    holder.parts.append(len(holder.parts))
    holder.seen["b"] = holder.n
    Holder.made += 1
    xs.add_(1)
    names.add("new")
    print("n is", holder.n)
    noise = torch.rand(3) + random.random()
    return torch.relu(x) * SCALE + noise, holder


def wrong_relu(gm, example_inputs):
    """A backend that computes relu as abs."""
    for node in gm.graph.nodes:
        if node.target in (torch.relu, torch.nn.functional.relu):
            node.target = torch.abs
    gm.recompile()
    return gm


def arguments() -> tuple[Any, ...]:
    return X.clone(), Holder(), torch.zeros(3), {"old"}


def calls(compiled: Any, times: int, make: Any = arguments) -> tuple[list[Any], list[str]]:
    with events.record() as log, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            compiled(*make())
    return log, [str(each.message) for each in caught]


def of(log: list[Any], kind: type) -> list[Any]:
    return [event for event in log if isinstance(event, kind)]


def test_equal_calls_pass_in_silence(capsys: Any) -> None:
    global COUNT
    COUNT, Holder.made = 0, 0
    compiled = stator.compile(busy, backend="eager", options={"audit": 2, "strict": True})
    log, told = calls(compiled, 5)
    assert told == [] and len(of(log, events.Audited)) == 3
    assert not of(log, events.AuditDifference) and not of(log, events.AuditSkipped)
    assert COUNT == 5 and Holder.made == 5, "each call happens once"
    assert capsys.readouterr().out == "n is 1\n" * 5


def test_an_audited_call_is_the_call_that_eager_would_make() -> None:
    global COUNT
    compiled = stator.compile(busy, backend="eager", options={"audit": 1, "strict": True})
    outcomes = []
    for function in (busy, compiled):
        COUNT, Holder.made = 0, 0
        torch.manual_seed(3)
        random.seed(3)
        x, holder, xs, names = arguments()
        value, same = function(x, holder, xs, names)
        assert same is holder
        outcomes.append((value.tolist(), holder.n, holder.parts, holder.seen, xs.tolist(), sorted(names), COUNT,
                         torch.rand(1).item(), random.random()))
    assert outcomes[0] == outcomes[1]


def test_exceptions_are_compared_and_raised() -> None:
    def fails(x, n):
        return x + 1 / n

    compiled = stator.compile(fails, backend="eager", options={"audit": 1})
    with events.record() as log, pytest.raises(ZeroDivisionError):
        compiled(X, 0)
    assert [event.differences for event in of(log, events.Audited)] == [0]


def test_a_backend_that_is_wrong_is_found_with_its_line() -> None:
    compiled = stator.compile(busy, backend=wrong_relu, options={"audit": 1})
    log, told = calls(compiled, 1)
    event = of(log, events.AuditDifference)[0]
    assert event.line == busy.__code__.co_firstlineno + 12 and event.filename == __file__
    assert "relu" in event.text and "the result" in event.text and len(told) == 1
    assert "return torch.relu(x)" in told[0]


def test_a_guard_that_is_missing_is_found(monkeypatch: Any) -> None:
    def program(x, n):
        return x * n

    guard = Heap.guard
    monkeypatch.setattr(Heap, "guard", lambda heap, source, kind, value:
                        None if kind is Kind.EQUALS and source.text() == "n" else guard(heap, source, kind, value))
    compiled = stator.compile(program, backend="eager", dynamic=False, options={"audit": 1})
    log, _ = calls(compiled, 1, lambda: (X, 2))
    assert not of(log, events.AuditDifference)
    monkeypatch.undo()
    log, told = calls(compiled, 1, lambda: (X, 3))
    event = of(log, events.AuditDifference)[0]
    assert "guard" in event.text and "n == 3" in event.text and event.line == program.__code__.co_firstlineno + 1


def test_an_effect_that_is_dropped_is_found(monkeypatch: Any) -> None:
    def program(x, out):
        y = x + 1
        out.append(2)
        return y

    diff = write_back._diff
    monkeypatch.setattr(write_back, "_diff", lambda build, tracker, lines:
                        None if type(tracker.original) is list else diff(build, tracker, lines))
    compiled = stator.compile(program, backend="eager", options={"audit": 1})
    log, told = calls(compiled, 1, lambda: (X, [1]))
    event = of(log, events.AuditDifference)[0]
    assert "effect" in event.text and "args[1]" in event.text
    assert event.line == program.__code__.co_firstlineno + 2


def test_what_cannot_be_put_back_is_not_run_twice() -> None:
    def program(x, items):
        return x + next(items)

    def numbers():
        yield 1
        yield 2

    items = numbers()
    compiled = stator.compile(program, backend="eager", options={"audit": 1})
    with events.record() as log:
        assert compiled(X, items).equal(X + 1)
        assert compiled(X, items).equal(X + 2)
    assert [event.why for event in of(log, events.AuditSkipped)] == ["a generator was advanced"] * 2


def test_modules_and_their_state() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU())
    compiled = stator.compile(module, backend="eager", options={"audit": 1, "strict": True})
    with events.record() as log:
        compiled(torch.randn(4, 3)).sum().backward()
        compiled(torch.randn(4, 3))
    assert [event.differences for event in of(log, events.Audited)] == [0, 0]
    assert module[1].num_batches_tracked == 2 and module[0].weight.grad is not None


def test_the_environment_asks_for_audits(monkeypatch: Any) -> None:
    monkeypatch.setenv("STATOR_AUDIT", "2")
    log, _ = calls(stator.compile(lambda x: x + 1, backend="eager"), 3, lambda: (X,))
    assert len(of(log, events.Audited)) == 2
    for wrong in ("-1", "often", "1.5"):
        monkeypatch.setenv("STATOR_AUDIT", wrong)
        with pytest.raises(stator.OptionError, match="STATOR_AUDIT"):
            stator.compile(busy, backend="eager")


def test_settings() -> None:
    for wrong in (True, -1, "2"):
        with pytest.raises(stator.OptionError, match="audit"):
            stator.compile(busy, options={"audit": wrong})
    source = ("import torch, stator\nfrom stator import events\nwith events.record() as log:\n"
              "    stator.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
              "print([type(e).__name__ for e in log])")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True,
                          env={**os.environ, "STATOR_AUDIT": "3"})
    assert "Audited" in done.stdout
