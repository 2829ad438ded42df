"""Outside objects with `__del__` are captured, and end as in eager: once, and as early."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

Log = list[str]


class Ended:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.scale = 2

    def __del__(self) -> None:
        self.log.append(f"ended at {self.scale}")


class EndedList(list[int]):
    def __init__(self, log: Log) -> None:
        super().__init__([1, 2])
        self.log = log

    def __del__(self) -> None:
        self.log.append(f"ended with {len(self)}")


class EndedPair(tuple[int, int]):
    log: Log

    def __del__(self) -> None:
        self.log.append(f"ended with {self[0]}")


class EndedModule(torch.nn.Module):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log, self.scale = log, 3
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale += 1
        return self.inner(x) * 0 + x * self.scale

    def __del__(self) -> None:
        self.log.append(f"ended at {self.scale}")


class WithSlots:
    __slots__ = ("log",)

    def __init__(self, log: Log) -> None:
        self.log = log

    def __del__(self) -> None:
        self.log.append("ended")


def pair(log: Log) -> EndedPair:
    made = EndedPair((1, 2))
    made.log = log
    return made


def use_object(thing: Ended, x: torch.Tensor) -> torch.Tensor:
    thing.scale += 1
    return x * thing.scale


def use_list(things: EndedList, x: torch.Tensor) -> torch.Tensor:
    things.append(5)
    return x * len(things)


def give_back(thing: Any, x: torch.Tensor) -> Any:
    return [thing], x + 1


def call_module(module: EndedModule, x: torch.Tensor) -> torch.Tensor:
    return module(x)


def read_log(thing: WithSlots, x: torch.Tensor) -> torch.Tensor:
    return x + len(thing.log)


PROGRAMS: list[tuple[Callable[[Log], Any], Callable[..., Any]]] = [
    (Ended, use_object), (EndedList, use_list), (pair, give_back), (EndedModule, call_module), (Ended, give_back),
    (WithSlots, read_log)]


def lives(make: Callable[[Log], Any], function: Callable[..., Any]) -> list[Any]:
    """Results, and what the log says after each call and each death."""
    seen: list[Any] = []
    for size in (2, 2, 3, 2):
        log: Log = []
        thing = make(log)
        x = torch.ones(1, 2) * size
        result = function(thing, x)
        seen.append(str(result[1] if type(result) is tuple else result))
        again = function(thing, x)
        seen.append((str(again[1] if type(again) is tuple else again), list(log)))
        if type(result) is tuple:
            seen.append(result[0][0] is thing)
        del result, again
        gone = weakref.ref(thing) if hasattr(thing, "__weakref__") else None
        del thing
        seen.append((list(log), gone is None or gone() is None))
    return seen


@pytest.mark.parametrize(("make", "function"), PROGRAMS)
def test_objects_with_finalizers_are_captured(make: Callable[[Log], Any], function: Callable[..., Any]) -> None:
    gc.collect()
    gc.disable()  # an object that dies must not wait for a collection
    try:
        expected = lives(make, function)
        found = lives(make, stator.compile(function, backend="eager", fullgraph=True))
    finally:
        gc.enable()
    if function is call_module:  # the parameters of each module differ, the result does not
        assert all("ended at 5" in entry[0] for entry in (found[2], expected[2]))
    assert found == expected
    assert any("ended" in str(entry) for entry in found)


def test_a_death_inside_the_call_is_seen_where_eager_shows_it() -> None:
    def let_go(holder: list[Ended], x: torch.Tensor) -> torch.Tensor:
        log = holder[0].log
        y = x * holder[0].scale
        log.append("before")
        holder.clear()
        log.append("after")
        return y

    def story(function: Callable[..., Any]) -> list[Any]:
        seen = []
        for _ in range(3):
            log: Log = []
            seen.append((str(function([Ended(log)], torch.ones(2))), log))
        return seen

    assert story(stator.compile(let_go, backend="eager")) == story(let_go)


def test_a_capture_that_fails_ends_no_stand_in() -> None:
    log: Log = []
    thing = Ended(log)

    def breaks(thing: Ended, x: torch.Tensor) -> torch.Tensor:
        thing.scale += 1
        torch._C._get_tracing_state()
        print(end="")
        return x * thing.scale + len(repr(weakref.getweakrefcount(thing)))

    compiled = stator.compile(breaks, backend="eager")
    assert compiled(thing, torch.ones(2)).tolist() == [4.0, 4.0]
    assert not log and thing.scale == 3
    del thing
    assert log == ["ended at 3"]
