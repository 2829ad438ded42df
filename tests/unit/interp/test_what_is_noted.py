"""Notes of the interpreter beside the result: lines on nodes and guards, and facts that it refuses to rely on."""

from __future__ import annotations

import copy
import enum
import resource
import weakref
from typing import Any

import numpy
import torch
from torch import nn

import stator
from stator import events
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0, 3.0])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.scale = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y.relu() * self.scale


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *others = self.layers
        x = first(x)
        for layer in others:
            x = layer(x)
        return x.sum()


def captured(fn: Any, *args: Any) -> tuple[torch.fx.GraphModule, Any]:
    with events.record() as log:
        stator.compile(fn, backend="eager", fullgraph=True)(*args)
    (made,) = [event for event in log if isinstance(event, events.CaptureFinished)]
    return made.graph, made.guard_list


def test_nodes_know_the_lines_of_the_program() -> None:
    graph, _ = captured(Layers(), X)
    seen = {node.name: node.meta["stack_trace"].strip().splitlines() for node in graph.graph.nodes
            if node.op in ("call_function", "call_method")}
    assert len(seen) == 13
    first, body = Layers.forward.__code__.co_firstlineno + 2, Layer.forward.__code__.co_firstlineno + 1
    for name, stack in seen.items():
        lines = [line.strip() for line in stack if __file__ in line]
        if name.startswith("sum"):
            assert lines == [f'File "{__file__}", line {first + 3}, in forward']
        else:
            caller, own = first + 2 if "_" in name else first, body if name.startswith("linear") else body + 1
            assert lines == [f'File "{__file__}", line {line}, in forward' for line in (caller, own)], name
            assert stack[-1].strip() == lines[-1] or name.startswith("linear")


def test_guards_know_the_lines_of_the_program() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        if n == 2:
            return x * 3
        return x

    _, guards = captured(fn, X, 2)
    lines = {guard.where for guard in guards if guard.where is not None}
    first = fn.__code__.co_firstlineno
    assert (__file__, first + 1, "fn") in lines
    assert all(file == __file__ and name == "fn" for file, _, name in lines)


def test_guards_of_loops_of_c_functions_are_the_callers() -> None:
    values = [1, 2, 3]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * sum(value for value in values)

    _, guards = captured(fn, X)
    assert {guard.where[0] for guard in guards if guard.where is not None} == {__file__}


class Thing:
    pass


def in_the_order_of_a_set(x: Any, n: int) -> Any:
    return [type(thing).__name__ for thing in {Thing(), Thing()}], x + n


def test_any_order_of_objects_made_inside_is_one_of_eager() -> None:
    assert compare(in_the_order_of_a_set, [(X, 1), (X, 2)]).breaks == []


def long_loop(x: Any, n: int) -> Any:
    total = 0
    while total < n:
        total += 1
    return x + total


def test_a_loop_that_runs_for_long_is_left_to_python() -> None:
    with stator.config.patch(capture_iteration_limit=50):
        assert compare(long_loop, [(X, 10)]).breaks == []
        assert compare(long_loop, [(X, 100), (X, 100)]).breaks == ["SB011"]


def unknown_to_the_table(x: Any, n: int) -> Any:
    return x + n, type(resource.getpagesize()).__name__


def test_a_break_names_the_function_written_in_c() -> None:
    (event,) = compare(unknown_to_the_table, [(X, 1)]).of(events.GraphBreak)
    assert "getpagesize" in event.cause


def captures(fn: Any, *calls: Any) -> list[int]:
    """How many graphs each call makes, which equals eager."""
    compiled, made = stator.compile(fn, backend="eager", fullgraph=True), []
    for args in calls:
        with events.record() as log:
            assert torch.equal(compiled(X, *copy.deepcopy(args)), fn(X, *copy.deepcopy(args)))
        made.append(sum(isinstance(event, events.CaptureFinished) for event in log))
    return made


def hands_on(x: Any, first: Any, second: Any) -> Any:
    def taken(used: int, left: Any, named: Any = None) -> int:
        return used

    return x + taken(first, second, named=second)


def test_an_argument_that_nobody_looks_at_is_no_fact() -> None:
    assert captures(hands_on, (1, 2), (1, 5), (1, "a"), (1, [Thing()])) == [1, 0, 0, 0]


def test_the_length_of_a_list_is_no_fact_where_an_item_is_read_from_the_front() -> None:
    assert captures(lambda x, items: x + items[0], ([1, 2, 3],), ([1, 2],), ([1],)) == [1, 0, 0]

    def grown(x: Any, items: list[int]) -> Any:
        items.append(5)
        return x + items[1]

    assert captures(grown, ([1, 2, 3],), ([1, 2, 3, 4],), ([1, 2],), ([1],)) == [1, 0, 0, 1]


def test_members_of_an_enum_made_inside_are_no_facts() -> None:
    def numbered(x: Any, n: int) -> Any:
        class Local(enum.Enum):
            FIRST = n
            SECOND = 5

        return x + Local.FIRST.value + (weakref.ref(Local.FIRST)() is Local.FIRST) + (Local(5) is Local.SECOND)

    assert captures(numbered, (1,), (2,), (1,), (2,)) == [1, 1, 0, 0]


def held_scalar(x: Any, n: Any) -> Any:
    y = x * n
    return y, resource.getrlimit(n)


def test_a_break_names_what_asks_for_a_number_of_the_graph() -> None:
    seen = compare(held_scalar, [(X, numpy.int64(each)) for each in (3, 4, 5)])
    causes = {event.cause for event in seen.of(events.GraphBreak)}
    assert "resource.getrlimit of a numpy.int64 that is unbacked" in causes
