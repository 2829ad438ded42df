"""Reads of Python state that custom operators change: the graph calls the operator, the program reads what it left."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.heap.reached_state import Reach
from tests.comparison import same_as_eager

LOG: list[int] = []
TABLE: dict[str, list[int]] = {"calls": []}
QUEUE: collections.deque[int] = collections.deque()
COUNT = 0
SCALE = {"by": 2}


class Counter:
    total = 0
    made: list[int] = []

    def __init__(self) -> None:
        self.calls = 0
        self.items: list[int] = []

    def hit(self) -> None:
        self.calls += 1
        self.items.append(1)


class Slotted:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


COUNTER, SLOTTED = Counter(), Slotted()
TICKS = [itertools.count()]


def kept_in_a_cell() -> tuple[Callable[[], None], Callable[[], int]]:
    calls = 0

    def add() -> None:
        nonlocal calls
        calls += 1

    return add, lambda: calls


ADD, GET = kept_in_a_cell()


def helper() -> None:
    LOG.append(len(LOG))


@functools.lru_cache(None)
def remembered(size: int) -> int:
    LOG.append(size)
    return size


def count() -> None:
    global COUNT
    COUNT += 1


def count_on_class() -> None:
    Counter.total += 1


def by_name() -> None:
    setattr(COUNTER, "calls", getattr(COUNTER, "calls") + 1)  # noqa: B009, B010


def by_default(into: list[int] = LOG) -> None:
    into.append(1)


def nothing() -> None:
    SCALE["by"]


EFFECTS: dict[str, Callable[[], Any]] = {
    "list": lambda: LOG.append(1), "dict": lambda: TABLE["calls"].append(1), "deque": lambda: QUEUE.append(1),
    "helper": lambda: helper(), "global": count, "class": count_on_class, "method": lambda: COUNTER.hit(),
    "slot": lambda: setattr(SLOTTED, "calls", SLOTTED.calls + 1), "cell": lambda: ADD(), "name": by_name,
    "default": lambda: by_default(), "iterator": lambda: next(TICKS[0]), "partial": functools.partial(LOG.append, 1),
    "cache": lambda: remembered(len(LOG)), "made": lambda: Counter.made.append(1),
}
READS: dict[str, Callable[[], Any]] = {
    "dict": lambda: len(TABLE["calls"]), "deque": lambda: len(QUEUE), "global": lambda: COUNT,
    "class": lambda: Counter.total, "method": lambda: (COUNTER.calls, len(COUNTER.items)),
    "slot": lambda: SLOTTED.calls, "cell": lambda: GET(), "name": lambda: COUNTER.calls,
    "iterator": lambda: next(TICKS[0]), "made": lambda: len(Counter.made),
}


def read_log() -> int:
    return len(LOG)


def operator(name: str, effect: Callable[[], Any]) -> Any:
    @torch.library.custom_op(f"stator_reached::{name}_", mutates_args=())
    def call(x: torch.Tensor) -> torch.Tensor:
        effect()
        return x + 1

    call.register_fake(lambda x: torch.empty_like(x))
    return call


def whole(effect: Callable[[], Any]) -> Any:
    """A function in the graph: it runs on fake tensors while tracing, too."""
    def call(x: torch.Tensor) -> torch.Tensor:
        effect()
        return x + 1
    return stator.allow_in_graph(call)


OPERATORS = {name: operator(name, effect) for name, effect in EFFECTS.items()}
IDLE = operator("idle", nothing)
LIBRARY = torch.library.Library("stator_reached_kernels", "DEF")
LIBRARY.define("logged(Tensor x) -> Tensor")


def logged(x: torch.Tensor) -> torch.Tensor:
    LOG.append(1)
    return x + 1


LIBRARY.impl("logged", logged, "CPU")
LIBRARY.impl("logged", lambda x: torch.empty_like(x), "Meta")
torch.library.define("stator_reached_kernels::hidden", "(Tensor x) -> Tensor")
torch.library.impl("stator_reached_kernels::hidden", "cpu")(lambda x: (LOG.append(1), x + 1)[1])
torch.library.register_fake("stator_reached_kernels::hidden")(lambda x: torch.empty_like(x))
OPERATORS |= {f"whole {name}": whole(effect) for name, effect in EFFECTS.items() if name not in ("iterator", "cache")}
OPERATORS["library"] = torch.ops.stator_reached_kernels.logged
OPERATORS["hidden"] = torch.ops.stator_reached_kernels.hidden


def reset() -> dict[str, Any]:
    global COUNT
    for held in (LOG, TABLE["calls"], QUEUE, Counter.made):
        held.clear()  # type: ignore[attr-defined]
    COUNT = Counter.total = SLOTTED.calls = 0
    COUNTER.__init__()  # type: ignore[misc]
    TICKS[0] = itertools.count()
    remembered.cache_clear()
    ADD.__closure__[0].cell_contents = 0  # type: ignore[attr-defined]
    return {}


def program(name: str, before: bool) -> tuple[Any, ...]:
    call, read = OPERATORS[name], READS.get(name.removeprefix("whole "), read_log)

    def after(x: torch.Tensor) -> Any:
        y = call(x * 2)
        return y, read(), y + 1

    def around(x: torch.Tensor) -> Any:
        first = read()
        return first, call(x), read(), call(x), read()

    return around if before else after


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_state_is_read_as_the_operator_left_it(name: str, before: bool) -> None:
    x = torch.ones(2)
    fn: Any = program(name, before)
    sides = []
    for side in (fn, stator.compile(fn, backend="eager")):
        reset()
        sides.append([repr(side(x)) for _ in range(3)])
    assert sides[0] == sides[1]


def test_a_whole_capture_refuses_the_read() -> None:
    for name in ("list", "global", "class", "method", "cell", "library", "hidden"):
        with pytest.raises(stator.Unsupported, match="SB006"):
            stator.compile(program(name, True), backend="eager", fullgraph=True)(torch.ones(2))


def test_an_operator_without_state_costs_no_graph() -> None:
    same_as_eager(lambda x: (IDLE(x), COUNTER.calls, len(LOG), IDLE(x)), (torch.ones(2),), graphs=1)
    same_as_eager(lambda x: (OPERATORS["hidden"](x), COUNTER.calls), (torch.ones(2),), graphs=1)
    assert not Reach(torch.ops.stator_reached.idle_).names
    same_as_eager(lambda x: (OPERATORS["list"](x), COUNTER.calls, QUEUE), (torch.ones(2),), graphs=1)
