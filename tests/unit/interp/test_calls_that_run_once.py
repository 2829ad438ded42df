"""Errors in graphs with a call that must not run twice: the program's own, with all that they leave behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

LOG: list[str] = []


@torch.library.custom_op("stator_tests::logged", mutates_args={"x"})
def logged(x: torch.Tensor) -> None:
    LOG.append("called")
    x.mul_(-1)


def ending(function: Any, *args: Any) -> Any:
    LOG.clear()
    try:
        result = function(*args)
    except Exception as error:
        result = type(error), str(error)
    return repr(result), LOG[:], repr(args)


def size_after(x: Any, count: Any) -> Any:
    logged(x)
    return x.masked_select(torch.arange(8) < count).view(-1, 4)


def size_before(x: Any, count: Any) -> Any:
    rows = x.masked_select(torch.arange(8) < count).view(-1, 4)
    logged(x)
    return rows


def one_check(x: Any, count: Any) -> Any:
    n = count.item()
    torch._check(n < 5, lambda: "many")
    logged(x)
    return x[:1]


def check_without_a_message(x: Any, count: Any) -> Any:
    logged(x)
    n = count.item()
    torch._check(n < 5)
    return x[:1]


def several_checks(x: Any, count: Any) -> Any:
    n = count.item()
    torch._check(n < 5, lambda: "many")
    torch._check(n >= 2, lambda: "few")
    torch._check(n >= 3)
    logged(x)
    return torch.zeros(n)


def check_with_a_number_in_its_message(x: Any, count: Any) -> Any:
    n = count.item()
    torch._check(n < 5, lambda: f"{n} are many")
    logged(x)
    return x[:1]


def check_behind_another_branch(x: Any, count: Any) -> Any:
    n = count.item()
    if n > 6:
        raise ValueError("far too many")
    torch._check(n < 4, lambda: "many")
    logged(x)
    return x[:1]


@pytest.mark.parametrize("program", [
    size_after, size_before, one_check, check_without_a_message, several_checks, check_with_a_number_in_its_message,
    check_behind_another_branch])
def test_what_torch_asserts_of_sizes_fails_as_the_program_does(program: Any) -> None:
    compiled = stator.compile(program, backend="eager")
    for count in (4, 3, 1, 8, 4, 0, 2, 7):
        assert ending(compiled, torch.zeros(8), torch.tensor(count)) == ending(
            program, torch.zeros(8), torch.tensor(count)), count


def test_a_check_with_a_known_message_is_captured_with_the_call() -> None:
    program = stator.compile(one_check, backend="eager", fullgraph=True)
    assert ending(program, torch.zeros(8), torch.tensor(8)) == ending(one_check, torch.zeros(8), torch.tensor(8))


def waiting() -> Iterator[int]:
    try:
        yield 1
    finally:
        LOG.append("closed")


@contextlib.contextmanager
def noted() -> Iterator[None]:
    try:
        yield
    finally:
        LOG.append("left")


def waiting_in_a_with() -> Iterator[int]:
    with noted():
        yield 1


def in_a_loop(x: Any, index: Any) -> Any:
    for _ in waiting():
        logged(x)
        x[index]


def in_a_local(x: Any, index: Any) -> Any:
    values = waiting_in_a_with()
    next(values)
    logged(x)
    return x[index]


def before_the_call(x: Any, index: Any) -> Any:
    values = waiting()
    next(values)
    found = x[index]
    logged(x)
    return found


def under_another(x: Any, index: Any) -> Any:
    values = (each for each in waiting())
    next(values)
    logged(x)
    return x[index]


@pytest.mark.parametrize("program", [in_a_loop, in_a_local, before_the_call, under_another])
def test_an_error_closes_the_generators_it_drops(program: Any) -> None:
    compiled = stator.compile(program, backend="eager")
    for place in (0, 9, 0, 9):
        assert ending(compiled, torch.arange(4.0), torch.tensor([place])) == ending(
            program, torch.arange(4.0), torch.tensor([place]))


def test_an_error_comes_before_the_flags_set_behind_it() -> None:
    def program(x: Any, index: Any, leaf: Any) -> Any:
        logged(x)
        found = x[index]
        leaf.requires_grad_()
        return found * leaf

    compiled = stator.compile(program, backend="eager")
    for place in (0, 9, 0, 9):
        seen = []
        for function in (program, compiled):
            leaf = torch.ones(1)
            seen.append((ending(function, torch.arange(4.0), torch.tensor([place]), leaf), leaf.requires_grad))
        assert seen[0] == seen[1]


def test_an_error_ends_the_generator_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its body was resumed after a break: a generator that still seems to run cannot be dropped in silence."""
    def program(x: Any, index: Any) -> Any:
        def values() -> Iterator[Any]:
            stator.graph_break()
            logged(x)
            yield x[index]
        return list(values())

    unraisable: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda failure: unraisable.append(str(failure.exc_value)))
    compiled = stator.compile(program, backend="eager")
    for place in (0, 9, 0, 9):
        assert ending(compiled, torch.arange(4.0), torch.tensor([place])) == ending(
            program, torch.arange(4.0), torch.tensor([place]))
    assert unraisable == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("manager", [torch.no_grad, lambda: torch.autocast("cpu")], ids=["no_grad", "autocast"])
def test_an_error_leaves_a_manager_that_was_entered_before_a_break(manager: Any, backend: str) -> None:
    def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        with manager():
            stator.graph_break()
            torch.ops.leaving.bump(x)
            return x[index]

    compiled = stator.compile(program, backend=backend)
    for index, fails in ((1, False), (7, True), (7, True)):
        with torch.autocast("cpu", enabled=False), torch.enable_grad():
            x = torch.zeros(3)
            if fails:
                with pytest.raises(IndexError, match="index 7 is out of bounds"):
                    compiled(x, torch.tensor([index]))
            else:
                compiled(x, torch.tensor([index]))
            assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
            assert x.tolist() == [1, 1, 1]


@torch.library.custom_op("leaving::bump", mutates_args=("x",))
def _bump(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("leaving::refuse", mutates_args=("x",))
def _refuse(x: torch.Tensor) -> None:
    x.add_(1)
    if x.sum() > 6:
        raise ValueError("large")


def after_a_region(x: Any) -> None:
    with torch.no_grad():
        stator.graph_break()
    _refuse(x)


def after_a_setter(x: Any) -> None:
    torch.set_grad_enabled(False)
    _refuse(x)


def in_a_region_after_a_setter(x: Any) -> None:
    torch.set_grad_enabled(False)
    with torch.enable_grad():
        _refuse(x)


def before_a_setter(x: Any) -> Any:
    _bump(x)
    torch.set_grad_enabled(False)
    return x[x.sum().long()[None]]


def after_autocast(x: Any) -> None:
    with torch.autocast("cpu"):
        stator.graph_break()
    _refuse(x)


def after_the_default_dtype(x: Any) -> None:
    torch.set_default_dtype(torch.float64)
    _refuse(x)


@torch.no_grad()
def in_a_region(x: Any) -> None:
    _refuse(x)


@pytest.mark.parametrize("program", [after_a_region, after_a_setter, in_a_region_after_a_setter, before_a_setter,
                                     after_autocast, after_the_default_dtype, in_a_region])
def test_an_error_leaves_the_settings_of_the_program(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    found = []
    try:
        for function in (program, compiled, compiled):
            ended = ending(function, torch.arange(4.0))
            found.append((ended, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype()))
            torch.set_grad_enabled(True)
            torch.set_default_dtype(torch.float32)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    assert found[0] == found[1] == found[2]
    assert program is not in_a_region or stator.explain(program, backend="eager")(torch.zeros(4)).graph_break_count == 0


def in_a_handler(x: Any) -> None:
    try:
        raise KeyError("first")
    except KeyError:
        _refuse(x)


def in_a_handler_after_a_break(x: Any) -> None:
    try:
        raise KeyError("first")
    except KeyError:
        stator.graph_break()
        _refuse(x)


def in_a_generator_of_a_handler(x: Any) -> Any:
    try:
        raise KeyError("first")
    except KeyError:
        return [_refuse(each) for each in (part for part in (x,))]


def behind_a_call_in_a_handler(x: Any) -> Any:
    try:
        raise KeyError("first")
    except KeyError:
        _bump(x)
        return x[x.sum().long()[None]]


@pytest.mark.parametrize("program", [in_a_handler, in_a_handler_after_a_break, in_a_generator_of_a_handler,
                                     behind_a_call_in_a_handler])
def test_an_error_in_a_handler_has_its_context(program: Any) -> None:
    same_as_eager(program, call(torch.arange(4.0)), call(torch.arange(4.0)), fullgraph=False, strict=True)


@torch.library.custom_op("leaving::stop", mutates_args=())
def _stop(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 6:
        raise ValueError("large")
    return x + 1


@_stop.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def writes_itself(x: Any, y: Any) -> Any:
    _refuse(x)
    return x * 2


def writes_behind_a_write(x: Any, y: Any) -> Any:
    x.add_(1)
    _refuse(x)
    return x * 2


def writes_a_view(x: Any, y: Any) -> Any:
    part = x[1:]
    _refuse(part)
    part.mul_(2)
    return x * 2


def writes_two_views(x: Any, y: Any) -> Any:
    y.copy_(x)
    _refuse(x.view(2, 2))
    x.mul_(3)
    return x + y


def raises_behind_a_write(x: Any, y: Any) -> Any:
    y[1:].add_(1)
    return _stop(x) * y


def raises_behind_a_gradient(x: Any, y: Any) -> Any:
    weight = torch.ones(4, requires_grad=True)
    loss = (weight * x.exp()).sum()
    _refuse(x)
    return torch.autograd.grad(loss + (weight * x).sum(), weight)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", [writes_itself, writes_behind_a_write, writes_a_view, writes_two_views,
                                     raises_behind_a_write, raises_behind_a_gradient])
def test_an_operator_that_raises_keeps_the_writes_before_it(program: Any, fullgraph: bool, backend: str) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=fullgraph)
    for first in (torch.zeros(4), torch.arange(4.0), torch.arange(4.0) + 3, torch.zeros(4)):
        assert ending(compiled, first.clone(), torch.ones(4)) == ending(program, first.clone(), torch.ones(4))
