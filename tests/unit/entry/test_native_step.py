"""`_core.NativeStep`: the instruction of a break in C.   values of a segment  ->  Resume(next, values that live on)"""

from __future__ import annotations

import gc
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator._core import NativeStep, Resume


def exit_point() -> None:
    raise AssertionError("nobody calls it")


def jump_point() -> None:
    raise AssertionError("nobody calls it")


def failure_point() -> None:
    raise AssertionError("nobody calls it")


def step(operands: Any, kept: Any, exits: Any = (exit_point,), **more: Any) -> Any:
    return NativeStep(operands, kept, exits, failure_point, **more)


def shown(resume: Any) -> Any:
    assert type(resume) is Resume
    return resume.target, resume.values


def spread(*args: Any, **named: Any) -> Any:
    return args, named


def fail(*args: Any) -> Any:
    raise KeyError(*args)


def test_a_call_replaces_its_operands_by_the_result() -> None:
    assert shown(step((1, 2), (0, 3))("a", spread, "b", "c")) == (exit_point, ("a", "c", (("b",), {})))


def test_the_callee_may_be_known() -> None:
    assert shown(step((0, 1), (), callee=max)(3, 5)) == (exit_point, (5,))


def test_names_belong_to_the_last_operands() -> None:
    named = step((0, 1, 2), (), names=("k",))
    assert shown(named(spread, 1, 2)) == (exit_point, (((1,), {"k": 2}),))


def test_the_call_goes_through_invoke() -> None:
    invoked = step((0, 1), (1,), invoke=lambda function, *args, **named: ("invoked", function(*args, **named)))
    assert shown(invoked(abs, -3)) == (exit_point, (-3, ("invoked", 3)))


def test_a_statement_leaves_no_value() -> None:
    items: list[int] = []
    assert shown(step((0,), (1,), callee=items.append, gives=False)(7, 8)) == (exit_point, (8,)) and items == [7]


@pytest.mark.parametrize("jumps_on", [False, True])
def test_a_branch_leaves_by_the_truth_of_its_operand(jumps_on: bool) -> None:
    branch = step((0,), (1,), (exit_point, jump_point), jumps_on=jumps_on)
    for value in (0, 1, [], [0], torch.tensor(0.0), torch.tensor(2.0)):
        assert shown(branch(value, "kept")) == (jump_point if bool(value) is jumps_on else exit_point, ("kept",))


@pytest.mark.parametrize("made", [step((0,), (1,)), step((0,), (1,), callee=fail),
                                  step((0,), (1,), (exit_point, jump_point), jumps_on=True)])
def test_an_exception_goes_to_the_failure_point(made: Any) -> None:
    class Raising:
        def __bool__(self) -> bool:
            raise KeyError

        __call__ = __bool__

    target, (kept, error) = shown(made(Raising(), "kept"))
    assert target is failure_point and kept == "kept" and type(error) is KeyError
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] in (["__bool__"], ["fail"])
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize("more", [
    {"operands": (0, -1)}, {"operands": 3}, {"operands": ()}, {"exits": ()}, {"exits": (1, 2)}, {"jumps_on": True},
    {"names": "ab"}, {"names": ("a", "b")}])
def test_a_malformed_step_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        NativeStep(**{"operands": (0,), "kept": (), "exits": (exit_point,), "failure": failure_point, **more})
    with pytest.raises(TypeError, match="wants more values"):
        step((0, 3), ())(abs, 1)


def test_steps_leave_nothing_behind() -> None:
    value = SimpleNamespace()
    made = [step((0, 1), (2,)), step((0, 1), (2,), callee=fail), step((2,), (0, 1), (exit_point, jump_point), jumps_on=True)]
    gc.collect()
    before = [sys.getrefcount(each) for each in (value, spread, exit_point, failure_point)]
    for _ in range(1000):
        for each in made:
            each(spread, value, value)
    assert [sys.getrefcount(each) for each in (value, spread, exit_point, failure_point)] == before


CALLS: list[int] = []


@torch.compiler.disable
def note(x: torch.Tensor) -> None:
    CALLS.append(1)


def noted(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    note(x)
    if x.sum() > 0:
        return x * 2
    return x


def test_explain_runs_the_instruction_once() -> None:
    """The cost of a break is measured without calls of the program."""
    CALLS.clear()
    shown = stator.explain(noted)(torch.ones(2))
    assert len(CALLS) == 1 and "passed 1x; each costs" in str(shown)


@pytest.mark.parametrize("disable", [torch.compiler.disable, stator.disable])
def test_disabled_callees_run_without_the_hook(disable: Any) -> None:
    """Functions that a disabled one calls are compiled neither at first nor later."""
    seen: list[bool] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        seen.append(stator._hook.active())
        return x + 1

    outer = disable(lambda x: inner(x))

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = outer(x * 2)
        return x

    compiled = stator.compile(program, backend="eager")
    with events.record() as log:
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))
    assert not any(seen) and "inner" not in {event.name for event in log if isinstance(event, events.CaptureStarted)}
