"""An error that only the graph meets, and that the program handles: it goes on as in eager, and nothing is said."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.emit.residual.kept_inputs import KEPT_BYTES
from stator.interp import machine
from tests.comparison import call, same_as_eager

GOOD, BAD = torch.tensor([0, 1]), torch.tensor([0, 9])
LARGE = KEPT_BYTES // 4 + 1


class Swallowing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        return kind is IndexError


class Rows:
    """A sequence of the old protocol: an IndexError ends it."""

    def __init__(self, x: Any, index: Any) -> None:
        self.x, self.index = x, index

    def __getitem__(self, place: int) -> Any:
        return self.x[self.index + place]


def raises_after_it(x: Any, index: Any, log: list[Any]) -> Any:
    log.append("before")
    x[index]
    log.append("after")
    raise ValueError("the program's own")


def raises_another_lookup_error(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        x[index]
        log.append("after")
        raise KeyError("the program's own")
    except LookupError as error:
        log.append(type(error).__name__)
        return -1


def catches_and_returns(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        found = x[index]
    except IndexError as error:
        log.append(str(error))
        return x.sum()
    return found


def catches_by_a_tuple_of_classes(x: Any, index: Any, log: list[Any]) -> Any:
    for step in range(3):
        try:
            x[index]
            log.append(step)
            raise ValueError(step)
        except (IndexError, ValueError) as error:
            log.append(type(error).__name__)
    return len(log)


def suppresses(x: Any, index: Any, log: list[Any]) -> Any:
    with contextlib.suppress(IndexError):
        x[index]
        log.append("after")
        raise KeyError("the program's own")
    return 7


def leaves_by_a_manager_of_its_own(x: Any, index: Any, log: list[Any]) -> Any:
    with Swallowing():
        log.append(x[index].shape[0])
        return "inside"
    return "behind"


def leaves_by_a_finally(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        x[index]
        raise ValueError("the program's own")
    finally:
        log.append("left")
        return 3  # noqa: B012


def asserts_after_it(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        x[index]
        assert not log, "the program's own"
    except IndexError:
        log.append("handled")
    return 5


def breaks_out_of_a_loop(x: Any, index: Any, log: list[Any]) -> Any:
    while True:
        try:
            found = x[index]
            break
        except IndexError:
            log.append("again")
            index = index % 3
    return found


def is_handled_by_the_caller(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        return raises_after_it(x, index, log)
    except (IndexError, ValueError) as error:
        return type(error).__name__


def is_handled_around_a_generator(x: Any, index: Any, log: list[Any]) -> Any:
    def rows() -> Any:
        log.append("begun")
        yield x[index]
        raise ValueError("at its end")

    try:
        for row in rows():
            log.append(row.shape[0])
    except (IndexError, ValueError) as error:
        return type(error).__name__
    return None


def ends_an_iteration(x: Any, index: Any, log: list[Any]) -> Any:
    for found in Rows(x, index):
        log.append(found.shape[0])
        if len(log) > 2:
            raise ValueError("too many")
    return len(log)


def is_handled_behind_a_break(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        log.append("before")
        stator.graph_break()
        x[index]
        log.append("after")
        stator.graph_break()
        raise ValueError("the program's own")
    except IndexError:
        return "handled"


def is_written_to_before(x: Any, index: Any, log: list[Any]) -> Any:
    try:
        x.add_(1)
        found = x[index]
        x.mul_(2)
    except IndexError:
        return x.sum()
    return found


PROGRAMS = [raises_after_it, raises_another_lookup_error, catches_and_returns, catches_by_a_tuple_of_classes, suppresses,
            leaves_by_a_manager_of_its_own, leaves_by_a_finally, asserts_after_it, breaks_out_of_a_loop,
            is_handled_by_the_caller, is_handled_around_a_generator, ends_an_iteration, is_handled_behind_a_break,
            is_written_to_before]  # fmt: skip


def portrait(program: Callable[..., Any], x: Any, *args: Any) -> tuple[Any, ...]:
    log: list[Any] = []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = repr(program(x, *args, log))
        except Exception as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
            result = repr((error, lines[1:], error.__context__))
    return result, log, printed.getvalue(), x.tolist(), [str(each.message) for each in told]


@pytest.mark.parametrize("order", [(GOOD, BAD, GOOD, BAD), (BAD, GOOD, BAD)], ids=["good first", "bad first"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_goes_on_as_in_eager(program: Callable[..., Any], order: tuple[Any, ...], backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    for index in order:
        assert portrait(compiled, torch.arange(3.0), index) == portrait(program, torch.arange(3.0), index)


def large_writes(big: Any, index: Any, log: list[Any]) -> Any:
    try:
        big.add_(1)
        log.append("written")
        found = torch.arange(3.0)[index]
        big.mul_(2)
    except IndexError:
        return big[0] * 10
    return found


def large_writes_before_a_division(big: Any, number: float, log: list[Any]) -> Any:
    try:
        big.add_(1)
        log.append("written")
        return big[:2].sum() * (1.0 / number)
    except ZeroDivisionError:
        return -1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("program", "values"), [(large_writes, (GOOD, BAD, GOOD, BAD)),
                                                 (large_writes_before_a_division, (2.0, 3.0, 4.0, 0.0, 5.0))])
def test_what_cannot_be_taken_back(program: Callable[..., Any], values: tuple[Any, ...], backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    for value in values:
        assert portrait(compiled, torch.zeros(LARGE), value) == portrait(program, torch.zeros(LARGE), value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_autograd_has_seen(backend: str) -> None:
    def program(x: Any, index: Any, log: list[Any]) -> Any:
        try:
            x.mul_(2)
            found = torch.arange(3.0)[index]
        except IndexError:
            return (x * 10).sum()
        return (found.sum() * x).sum()

    compiled = stator.compile(program, backend=backend)
    for index in (GOOD, BAD, GOOD):
        grads = []
        for function in (compiled, program):
            leaf = torch.ones(3, requires_grad=True)
            function(leaf * 1, index, []).backward()
            grads.append(leaf.grad.tolist())
        assert grads[0] == grads[1]


@pytest.mark.parametrize("around", [torch.no_grad, contextlib.nullcontext, torch.enable_grad])
def test_what_catches_nothing_breaks_nothing(around: Callable[[], Any]) -> None:
    """Managers of torch's, `finally` and clauses for other errors than an operation's: the graph stays whole."""
    def program(big: Any, index: Any) -> Any:
        try:
            with around():
                try:
                    big.add_(1)
                    return torch.arange(3.0)[index]
                finally:
                    big.mul_(2)
        except TypeError:
            return None

    compiled = stator.compile(program, backend="eager")
    with events.record() as log:
        compiled(torch.zeros(LARGE), GOOD)
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


def test_a_graph_that_fails_alone_is_named_inside_a_handler_of_others() -> None:
    """Where no operation may fail, a handler around it excuses no graph that does."""
    def failing_graph(module: Any, inputs: Any) -> Any:
        def run(*values: Any) -> Any:
            raise RuntimeError("a kernel for handled programs is missing")
        return run

    def program(x: Any) -> Any:
        try:
            return x + 1
        except RuntimeError:
            return x

    with pytest.warns(RuntimeWarning, match="a kernel for handled programs"):
        assert torch.equal(stator.compile(program, backend=failing_graph)(torch.ones(3)), torch.ones(3) + 1)


def test_the_handlers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is told to nodes, the tests above fail."""
    monkeypatch.setattr(machine, "caught_in", lambda frame, generators, outside: 0)
    compiled = stator.compile(large_writes, backend="eager")
    portrait(compiled, torch.zeros(LARGE), GOOD)
    assert portrait(compiled, torch.zeros(LARGE), BAD) != portrait(large_writes, torch.zeros(LARGE), BAD)


@torch.library.custom_op("stator_tests::below_a_hundred", mutates_args=())
def below_a_hundred(x: torch.Tensor) -> torch.Tensor:
    if float(x.sum()) > 100:
        raise KeyError("too much")
    return x + 1


@below_a_hundred.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_operator_of_the_users_raises_what_torch_does_not() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            y = torch.ops.stator_tests.below_a_hundred(x)
        except KeyError:
            return x * 3
        return y * 2

    compiled = stator.compile(program, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1.0, 1.0, 200.0, 1.0, 300.0):
            x = torch.full((2,), value)
            assert torch.equal(compiled(x), program(x))


def first_of_two(x: Any) -> Any:
    try:
        torch._foreach_add_([x, torch.ones(3)], [torch.ones(4), torch.ones(4)])
    except RuntimeError:
        pass
    return x


def first_of_two_before_a_break(x: Any) -> None:
    try:
        torch._foreach_add_([x, torch.ones(3)], [torch.ones(4), torch.ones(4)])
    finally:
        stator.graph_break()


@pytest.mark.parametrize("program", [first_of_two, first_of_two_before_a_break])
def test_an_operation_that_fails_after_its_first_write(program: Any) -> None:
    """Fakes refuse it before any write."""
    same_as_eager(program, call(torch.arange(4.0)), call(torch.arange(4.0)), fullgraph=False, strict=True)
