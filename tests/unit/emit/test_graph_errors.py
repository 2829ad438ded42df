"""An error that only the graph meets: what the program did before it has happened, as in eager."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events


def test_effects_before_the_error_happen() -> None:
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        return x[index]

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    good = torch.tensor([0, 1])
    assert torch.equal(compiled(torch.arange(3.0), good, log), torch.tensor([0.0, 1.0]))
    with events.record() as seen, pytest.raises(IndexError, match="out of bounds|out of range"):
        compiled(torch.arange(3.0), torch.tensor([0, 9]), log)
    assert log == ["before", "before"]
    assert any(isinstance(event, events.EagerFallback) for event in seen)
    assert torch.equal(compiled(torch.arange(3.0), good, log), torch.tensor([0.0, 1.0]))
    assert log == ["before"] * 3


def test_an_error_before_the_first_write() -> None:
    """The graph writes in place, and fails before it has: the program runs as it is, and raises at its own line."""
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        y = x[index]
        x.add_(1)
        return y

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    x = torch.arange(3.0)
    compiled(x, torch.tensor([0, 1]), log)
    with pytest.raises(IndexError) as caught:
        compiled(x, torch.tensor([0, 9]), log)
    assert log == ["before", "before"]
    assert x.tolist() == [1, 2, 3]
    assert caught.traceback[-1].name == "program"
    compiled(x, torch.tensor([0, 1]), log)
    assert (x.tolist(), len(log)) == ([2, 3, 4], 3)


@pytest.mark.parametrize("way", ["plainly", "through data", "through a view"])
def test_an_error_after_a_write_is_not_made_again(way: str) -> None:
    def program(x: Any, index: Any) -> Any:
        (x if way == "plainly" else x.data if way == "through data" else x[1:]).add_(1)
        return x[index]

    compiled = stator.compile(program, backend="eager")
    x = torch.zeros(3)
    compiled(x, torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 9]))
    assert x.tolist()[1:] == [2, 2]
    compiled(x, torch.tensor([0, 1]))
    assert x.tolist()[1:] == [3, 3]


def test_writes_to_what_the_graph_made_are_nobody_elses() -> None:
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        log.append("before")
        return x.clone().add_(1)[index]

    compiled = stator.compile(program, backend="eager")
    log: list[Any] = []
    compiled(torch.zeros(3), torch.tensor([0, 1]), log)
    with pytest.raises(IndexError):
        compiled(torch.zeros(3), torch.tensor([0, 9]), log)
    assert len(log) == 2


def failing_graph(module: Any, inputs: Any) -> Any:
    """A backend whose code raises where the program does not."""
    def run(*values: Any) -> Any:
        raise RuntimeError(f"a kernel for {values[0].shape[0]} elements is missing")
    return run


def test_a_graph_that_fails_alone_is_named_once() -> None:
    compiled = stator.compile(lambda x, log: log.append(1) or x + 1, backend=failing_graph)
    x, log = torch.ones(17), []
    with pytest.warns(RuntimeWarning, match="a kernel for 17 elements is missing.*the program itself does not") as told:
        assert torch.equal(compiled(x, log), x + 1)
        assert torch.equal(compiled(x, log), x + 1)
    assert len(told) == 1 and told[0].filename == __file__
    assert len(log) == 2


def test_a_graph_that_fails_with_the_program_is_not_told(recwarn: pytest.WarningsRecorder) -> None:
    compiled = stator.compile(lambda x, index: x[index], backend="eager")
    compiled(torch.arange(3.0), torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        compiled(torch.arange(3.0), torch.tensor([0, 19]))
    assert not [warning for warning in recwarn if "stator" in str(warning.message)]


def test_a_warning_that_raises_is_raised() -> None:
    compiled = stator.compile(lambda x: x + 1, backend=failing_graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="a kernel for 23"):
            compiled(torch.ones(23))


def test_a_lock_that_is_taken_is_waited_for(recwarn: pytest.WarningsRecorder) -> None:
    """The segment hands the call back; that is no failure of a graph."""
    gate, log = threading.Lock(), []

    def program(x: Any) -> Any:
        log.append("called")
        with gate:
            return x + 1

    compiled = stator.compile(program, backend="eager")
    compiled(torch.ones(2))
    gate.acquire()
    timer = threading.Timer(0.05, gate.release)
    timer.start()
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    timer.join()
    assert len(log) == 2 and not gate.locked()
    assert not [warning for warning in recwarn if "stator" in str(warning.message)]
