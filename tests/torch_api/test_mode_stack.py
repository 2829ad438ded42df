"""The stack of TorchFunctionModes as the program itself sees and changes it, and whether handlers are on at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.utils.checkpoint import checkpoint

import stator
from stator import events
from tests.comparison import same_as_eager
from tests.torch_api.side_by_side import Counting, Watching

C: Any = torch._C


class Own(torch.Tensor):
    pass


def pushed_and_popped(x: Any) -> Any:
    first, second = Counting(), Counting()
    depths = [C._len_torch_function_stack()]
    C._push_on_torch_function_stack(first)
    C._push_on_torch_function_stack(second)
    y = torch.sin(x)
    depths.append(C._len_torch_function_stack())
    found = C._get_function_stack_at(0) is first, C._get_function_stack_at(1) is second
    inner = C._pop_torch_function_stack() is second
    y = torch.cos(y)
    outer = C._pop_torch_function_stack() is first
    return torch.sin(y), first.seen, second.seen, depths, found, inner, outer, C._len_torch_function_stack()


def handlers_off(x: Any) -> Any:
    def asked() -> Any:
        return C._is_torch_function_enabled(), C._is_torch_function_all_disabled(), str(C._get_torch_function_state()), \
            type(y + 1) is Own

    y = x.as_subclass(Own)
    found = [asked()]
    with C.DisableTorchFunctionSubclass():
        found.append(asked())
        with C.DisableTorchFunction():
            found.append(asked())
        found.append(asked())
    return x + 1, found, asked(), C._len_torch_dispatch_stack()


@pytest.mark.parametrize("fn", [pushed_and_popped, handlers_off], ids=lambda fn: fn.__name__)
def test_equals_eager(fn: Any) -> None:
    x = torch.arange(4.0)
    same_as_eager(fn, (x,), (x + 1,), (x,))


def under_a_device(x: Any) -> Any:
    with torch.device("meta"):
        depth = C._len_torch_function_stack()
        kind = type(C._get_function_stack_at(0)).__name__
    return x + 1, depth, kind


def outside_the_stack(x: Any) -> Any:
    try:
        return C._get_function_stack_at(3)
    except Exception as error:
        return x + 1, type(error)


@pytest.mark.parametrize("fn", [under_a_device, outside_the_stack], ids=lambda fn: fn.__name__)
def test_what_breaks_equals_eager(fn: Any) -> None:
    same_as_eager(fn, (torch.ones(2),), (torch.zeros(2),), fullgraph=False)


def rows_by_position(table: Any, positions: Any) -> Any:
    with TransformGetItemToIndex():
        return torch.vmap(lambda i: table[i])(positions) * 2, table[positions[0]], table[positions[1], positions[0]]


def test_positions_inside_vmap_are_tensors() -> None:
    table = torch.arange(12.0).reshape(3, 4)
    for positions in ([2, 0, 1], [1, 1]):
        same_as_eager(rows_by_position, (table, torch.tensor(positions)), (table + 1, torch.tensor(positions)))


def test_a_mode_that_is_left_on_is_on_after_the_call() -> None:
    log = Counting()

    def leaves_on(x: torch.Tensor) -> torch.Tensor:
        log.__enter__()
        return torch.sin(x)

    compiled, x = stator.compile(leaves_on, backend="eager"), torch.ones(2)
    for _ in range(2):
        compiled(x)
        try:
            torch.cos(x)
            assert C._len_torch_function_stack() == 1
        finally:
            while C._len_torch_function_stack():
                C._pop_torch_function_stack()
        assert log.seen == ["sin", "cos"]
        log.seen.clear()


def test_handlers_that_are_left_off_are_off_after_the_call() -> None:
    kept = []

    def leaves_off(x: torch.Tensor) -> torch.Tensor:
        guard = C.DisableTorchFunctionSubclass()
        guard.__enter__()
        kept.append(guard)
        return torch.sin(x)

    compiled = stator.compile(leaves_off, backend="eager")
    for _ in range(2):
        compiled(torch.ones(2))
        try:
            assert not C._is_torch_function_enabled()
        finally:
            while kept:
                kept.pop().__exit__(None, None, None)
        assert C._is_torch_function_enabled()


def checkpointed(x: Any) -> Any:
    with Counting() as log:
        y = checkpoint(torch.sin, x, use_reentrant=False)
    return y, log.seen


def asks_for_the_device(x: Any) -> Any:
    with Counting() as log:
        device = torch.get_default_device()
    return x + 1, device, log.seen


@pytest.mark.parametrize("fn", [checkpointed, asks_for_the_device], ids=lambda fn: fn.__name__)
def test_functions_of_torch_with_rules_of_their_own_show_modes_what_they_do(fn: Any) -> None:
    same_as_eager(fn, (torch.ones(2),), (torch.zeros(2),), fullgraph=False)


def steps(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def test_a_dispatch_mode_around_a_call_sees_the_programs_operations_alone() -> None:
    told = []
    for run in (steps, stator.compile(steps, backend="eager")):
        for _ in range(2):
            with Watching() as mode:
                made = run(torch.ones(2))
            told.append((made.tolist(), mode.seen))
    assert told[:2] == told[2:]


def test_a_call_inside_a_transform_is_made_as_it_is() -> None:
    compiled, x = stator.compile(steps, backend="eager"), torch.arange(6.0).reshape(2, 3)
    for _ in range(2):
        assert torch.equal(torch.vmap(compiled)(x), torch.vmap(steps)(x))
        assert torch.equal(torch.func.grad(lambda t: compiled(t).sum())(x), torch.cos(x))
    with events.record() as log:
        torch.vmap(stator.compile(steps, backend="eager"))(x)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]
