"""TorchFunctionModes that the program enters or leaves for good: torch's stack after the call is eager's."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

import stator

C = torch._C


class Adds(TorchFunctionMode):
    """`torch.add` adds `more` on top."""

    def __init__(self, more: float) -> None:
        super().__init__()
        self.more = more

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + self.more if func is torch.add else result


OUTER, INNER, NEW = Adds(10.0), Adds(100.0), Adds(1000.0)


def stack() -> list[object]:
    return [C._get_function_stack_at(level) for level in range(C._len_torch_function_stack())]


def push(x):
    y = torch.add(x, 1)
    C._push_on_torch_function_stack(NEW)
    return y, torch.add(x, 1)


def pop(x):
    y = torch.add(x, 1)
    popped = C._pop_torch_function_stack()
    return y, torch.add(x, 1), popped is INNER, C._len_torch_function_stack()


def exchange(x):
    C._pop_torch_function_stack()
    C._push_on_torch_function_stack(NEW)
    return torch.add(x, 1)


def pop_all(x):
    C._pop_torch_function_stack()
    C._pop_torch_function_stack()
    return torch.add(x, 1)


def enter(x):
    NEW.__enter__()
    return torch.add(x, 1)


def make_and_push(x):
    C._push_on_torch_function_stack(Adds(3.0))
    return torch.add(x, 1)


def outcome(fn, around, x):
    """Results, and what is on the stack afterwards."""
    assert stack() == []
    for mode in around:
        C._push_on_torch_function_stack(mode)
    try:
        result = fn(x)
        left = [(type(mode), mode.more) for mode in stack()]
        known = [mode for mode in stack() if mode in (OUTER, INNER, NEW)]
    finally:
        while C._len_torch_function_stack():
            C._pop_torch_function_stack()
    return result, left, known


@pytest.mark.parametrize("fn, around", [
    (push, []), (push, [OUTER]), (pop, [OUTER, INNER]), (exchange, [OUTER]), (pop_all, [OUTER, INNER]), (enter, []),
    (enter, [OUTER]), (make_and_push, []),
], ids=lambda value: value.__name__ if callable(value) else str(len(value)))
def test_stack_after_the_call(fn, around):
    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    for x in (torch.ones(2), torch.full((2,), 5.0), torch.ones(2)):
        wanted, given = outcome(fn, around, x), outcome(compiled, around, x)
        torch.testing.assert_close(given[0], wanted[0])
        assert given[1:] == wanted[1:]


def test_other_modes_are_other_entries():
    compiled = stator.compile(exchange, backend="eager")
    for around in ([OUTER], [OUTER, INNER], [INNER]):
        wanted, given = outcome(exchange, around, torch.ones(2)), outcome(compiled, around, torch.ones(2))
        assert torch.equal(given[0], wanted[0]) and given[1:] == wanted[1:]


def push_and_break(x):
    C._push_on_torch_function_stack(NEW)
    y = torch.add(x, 1)
    stator.graph_break()
    z = torch.add(y, 1)
    C._pop_torch_function_stack()
    stator.graph_break()
    return torch.add(z, 1)


def pop_and_break(x):
    C._pop_torch_function_stack()
    y = torch.add(x, 1)
    stator.graph_break()
    return torch.add(y, 1)


def push_and_raise(x):
    C._push_on_torch_function_stack(NEW)
    x = torch.add(x, 1)
    raise ValueError("after the push")


@pytest.mark.parametrize("fn, around", [(push_and_break, []), (push_and_break, [OUTER]), (pop_and_break, [INNER])])
def test_break_behind_a_change(fn, around):
    compiled = stator.compile(fn, backend="eager")
    for x in (torch.ones(2), torch.full((2,), 5.0)):
        wanted, given = outcome(fn, around, x), outcome(compiled, around, x)
        assert torch.equal(given[0], wanted[0]) and given[1:] == wanted[1:]


@pytest.mark.parametrize("around", [[], [OUTER]])
def test_error_behind_a_push(around):
    def caught(fn):
        def call(x):
            with pytest.raises(ValueError, match="after the push"):
                fn(x)
        return call

    compiled = stator.compile(push_and_raise, backend="eager")
    for _ in range(2):
        assert outcome(caught(push_and_raise), around, torch.ones(2)) == outcome(caught(compiled), around, torch.ones(2))


def plain(x):
    return torch.add(x, 1)


def enters(x):
    with NEW:
        return torch.add(x, 1), C._len_torch_function_stack(), C._is_torch_function_mode_enabled()


def enters_turned_off(x):
    with C.DisableTorchFunction():
        with NEW:
            return torch.add(x, 1)


@pytest.mark.parametrize("fn", [plain, enters, enters_turned_off, push])
def test_modes_that_are_turned_off(fn):
    def off(fn):
        def call(x):
            with C.DisableTorchFunction():
                return fn(x)
        return call

    compiled = stator.compile(fn, backend="eager", fullgraph=fn is plain)
    for around in ([OUTER], [], [OUTER]):
        for x in (torch.ones(2), torch.full((2,), 5.0)):
            for each in (off, lambda fn: fn, off):
                if each is not off and fn is push:
                    continue
                wanted, given = outcome(each(fn), around, x), outcome(each(compiled), around, x)
                torch.testing.assert_close(given[0], wanted[0])
                assert given[1:] == wanted[1:]
