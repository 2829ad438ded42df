"""A local without a value stays without one over graph breaks: reading it raises, as in CPython.

In:  programs that delete a local, or bind it on some ways only, and read it behind a break.
Out: the value or the exception (class, text, line) of eager code, and what was noted before.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stator.code import flow
from stator.interp import suspend
from tests.comparison import Checks, Surroundings, World, call, compare_worlds, require_same

LOG: list[Any] = []
CHECKS = Checks(traceback="frames")


@torch.compiler.disable
def note(what: Any) -> None:
    LOG.append(what)


def same_as_eager(fn: Any, *shapes: tuple[int, ...]) -> None:
    calls = [call(torch.arange(3.0).reshape(shape)) for shape in shapes]
    surroundings = Surroundings(fn.__module__, __file__, lambda: LOG)
    require_same(compare_worlds(lambda: World(fn, calls, surroundings, lambda number: LOG.clear()), checks=CHECKS))


def deleted(x: torch.Tensor) -> Any:
    y = x * 2
    del y
    note("a")
    return y


def deleted_and_deleted_again(x: torch.Tensor) -> Any:
    y = x * 2
    del y
    note("a")
    del y


def deleted_and_bound_again(x: torch.Tensor) -> Any:
    y = x * 2
    del y
    note("a")
    y = x + 1
    note("b")
    return y


def deleted_argument(x: torch.Tensor) -> Any:
    note("a")
    del x
    note("b")
    return x


def deleted_cell(x: torch.Tensor) -> Any:
    y = x * 2
    def shown() -> Any:
        return y
    del y
    note("a")
    return shown()


def bound_by_a_branch(x: torch.Tensor) -> Any:
    if x.dim() == 2:
        y = x * 2
    note("a")
    return y


def bound_by_the_last_round(x: torch.Tensor) -> Any:
    for number in range(3):
        note(number)
        if number:
            note(y[0])
            del y
        else:
            y = x * 2


def bound_after_its_use(x: torch.Tensor) -> Any:
    for number in range(2):
        note(number)
        y = y + x


def loop_variable(x: torch.Tensor) -> Any:
    for number in range(x.dim() - 1):
        note(number)
    note("a")
    return number


def exception_variable(x: torch.Tensor) -> Any:
    try:
        raise ValueError
    except ValueError as error:
        note(str(error))
    note("a")
    return error


def exception_variable_of_an_earlier_round(x: torch.Tensor) -> Any:
    for number in range(2):
        note(number)
        try:
            if number:
                return error
            raise ValueError
        except ValueError as error:
            note("b")


def unbound_by_an_exception(x: torch.Tensor) -> Any:
    try:
        y = [x][1]
    except IndexError:
        note("a")
    note("b")
    return y


def comprehension_variable(x: torch.Tensor) -> Any:
    if x.dim() == 2:
        y = x
    found = [note(y) for y in range(2)]
    note("a")
    return found, y


def unbound_in_a_caller(x: torch.Tensor) -> Any:
    if x.dim() == 2:
        y = x
    (lambda: note("a"))()
    return y


def unbound_in_a_generator(x: torch.Tensor) -> Any:
    def parts() -> Any:
        if x.dim() == 2:
            y = x
        note("a")
        yield 1
        note("b")
        yield y
    return list(parts())


def unbound_and_handled(x: torch.Tensor) -> Any:
    if x.dim() == 2:
        y = x
    note("a")
    try:
        y
    except UnboundLocalError as error:
        y = str(error)
    note("b")
    return y


def unbound_under_finally(x: torch.Tensor) -> Any:
    try:
        note("a")
        y = [x][1]
    finally:
        note("b")
        y


def unbound_for_a_with_block(x: torch.Tensor) -> Any:
    with torch.no_grad():
        note("a")
        if x.dim() == 2:
            y = x
        note("b")
    note("c")
    return y


def seen_by_locals(x: torch.Tensor) -> Any:
    if x.dim() == 2:
        y = x
    z = x + 1
    del z
    note("a")
    return sorted(locals())


def matched(x: torch.Tensor) -> Any:
    match [x.dim()]:
        case [2, y]:
            pass
        case [1]:
            note("a")
    note("b")
    return y


UNBOUND_LOCALS = [
    deleted, deleted_and_deleted_again, deleted_and_bound_again, deleted_argument, deleted_cell, bound_by_a_branch,
    bound_by_the_last_round, bound_after_its_use, loop_variable, exception_variable,
    exception_variable_of_an_earlier_round, unbound_by_an_exception, comprehension_variable, unbound_in_a_caller,
    unbound_in_a_generator, unbound_and_handled, unbound_under_finally, unbound_for_a_with_block, seen_by_locals,
    matched]


@pytest.mark.parametrize("fn", UNBOUND_LOCALS)
def test_unbound_local(fn: Any) -> None:
    same_as_eager(fn, (3,), (3,))


@pytest.mark.parametrize("fn", [bound_by_a_branch, loop_variable, unbound_for_a_with_block])
def test_bound_in_one_call_and_not_in_another(fn: Any) -> None:
    same_as_eager(fn, (3,), (1, 3), (3,), (1, 3))


def test_switch_unbound_locals_that_are_read_are_not_dead(monkeypatch: Any) -> None:
    monkeypatch.setattr(suspend, "dead_slots", lambda frame, live, calls: tuple(
        sorted(flow.bound_locals(frame.unit, frame.ip).difference(live), reverse=True)))
    with pytest.raises(AssertionError):
        same_as_eager(bound_by_a_branch, (3,))
