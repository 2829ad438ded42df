"""Objects with `__del__` that the compiled callable is bound to are captured, and end once, when nothing holds them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events

Log = list[str]


class Ended:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.scale = 2

    def use(self, x: torch.Tensor) -> torch.Tensor:
        self.scale += 1
        return x * self.scale

    def give_back(self, x: torch.Tensor) -> Any:
        return self, x + 1

    def fail(self, x: torch.Tensor) -> None:
        self.scale += 1
        raise ValueError(self.scale)

    def identify(self, x: torch.Tensor) -> torch.Tensor:
        return x + ({self: 3}[self] if id(self) else 0)

    def stop(self, x: torch.Tensor) -> torch.Tensor:
        self.scale += 1
        stator.graph_break()
        return x * self.scale

    def __del__(self) -> None:
        self.log.append(f"ended at {self.scale}")


class EndedModule(torch.nn.Module):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log, self.scale = log, 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale += 1
        return x * self.scale

    def __del__(self) -> None:
        self.log.append(f"ended at {self.scale}")


def outcome(call: Callable[..., Any], x: torch.Tensor) -> str:
    try:
        result = call(x)
    except ValueError as error:
        return repr(error)
    return str(result)


def lives(bind: Callable[[Log], Any], compiled: bool) -> list[Any]:
    """Results, and what the log says while the object is held and after its end."""
    seen: list[Any] = []
    for size in (2, 3, 2):
        log: Log = []
        bound = bind(log)
        if compiled:
            bound = stator.compile(bound, backend="eager")
        seen.append([outcome(bound, torch.ones(2) * size) for _ in range(3)])
        gc.collect()
        seen.append(list(log))
        del bound
        gc.collect()
        seen.append(log)
    return seen


METHODS = ["use", "fail", "identify", "stop"]


@pytest.mark.parametrize("name", METHODS)
def test_bound_objects_end_as_in_eager(name: str) -> None:
    assert lives(lambda log: getattr(Ended(log), name), True) == lives(lambda log: getattr(Ended(log), name), False)


def test_modules_with_finalizers_end_as_in_eager() -> None:
    assert lives(EndedModule, True) == lives(EndedModule, False)


@pytest.mark.parametrize("name", ["use", "identify"])
def test_bound_objects_are_captured(name: str) -> None:
    log: Log = []
    compiled = stator.compile(getattr(Ended(log), name), backend="eager", fullgraph=True)
    expected = Ended([])
    for _ in range(3):
        assert outcome(compiled, torch.ones(2)) == outcome(getattr(expected, name), torch.ones(2))
    assert compiled.__wrapped__.__self__.scale == expected.scale and not log


def test_the_object_itself_leaves_the_call() -> None:
    thing = Ended([])
    compiled = stator.compile(thing.give_back, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[0] is thing
    assert not thing.log


def test_other_objects_with_finalizers_break() -> None:
    def use(thing: Ended, x: torch.Tensor) -> torch.Tensor:
        return thing.use(x)

    log: Log = []
    with events.record() as seen:
        assert stator.compile(use, backend="eager")(Ended(log), torch.ones(2)).tolist() == [3.0, 3.0]
    assert log == ["ended at 3"]
    assert [event.code for event in seen if isinstance(event, events.GraphBreak)][:1] == ["SB019"]


def test_a_capture_that_fails_ends_no_stand_in() -> None:
    def draw(self: Ended, x: torch.Tensor) -> torch.Tensor:
        self.scale += 1
        input_ = open("/dev/null").read()
        return x * self.scale + len(input_)

    thing = Ended([])
    compiled = stator.compile(draw.__get__(thing), backend="eager")
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [3.0, 4.0, 5.0]
    gc.collect()
    assert not thing.log
