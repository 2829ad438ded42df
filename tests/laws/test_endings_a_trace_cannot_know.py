"""The check of endings under fullgraph and strict: which exceptions may come before the one in which the trace ended.

In:  programs that end in KeyError, after an operation or output that fails only when it really runs.
Out: the exception of eager code, without an internal failure; a wrong trace is reported as before.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.emit.residual import eager_calls
from stator.interp.frame import Raised
from stator.interp.rule_registry import RULES

INDEX = torch.tensor([7])


def x() -> torch.Tensor:
    return torch.tensor([1.0, -2.0, 3.0])


@torch.library.custom_op("stator_endings::limited", mutates_args=())
def limited(value: torch.Tensor) -> torch.Tensor:
    if value.sum() > 100:
        raise ValueError("too large")
    return value.clone()


@torch.library.custom_op("stator_endings::written", mutates_args=("value",))
def written(value: torch.Tensor) -> None:
    value.add_(1)
    if value[0] > 1:
        raise RuntimeError("failed after the write")


@limited.register_fake
def _(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


def ending(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """Result, or class, text and innermost line of the exception; the arguments afterwards."""
    try:
        found: tuple[Any, ...] = ("returns", function(*args))
    except Exception as error:
        filename, line = eager_calls.innermost_line(error.__traceback__)
        found = (type(error), str(error), line if filename == __file__ else None)
    return *found, [value.tolist() for value in args]


def same_as_eager(program: Callable[..., Any], *indices: torch.Tensor, **options: Any) -> None:
    function = stator.compile(program, backend="eager", options={"strict": True}, **options)
    for index in (*indices, *indices):
        wanted = ending(program, x(), index)
        with events.record() as log:
            assert ending(function, x(), index) == wanted
        assert not [event for event in log if isinstance(event, events.InternalFailure)]


# ---------------------------------------------------------------------- operations


def indexes(x: Any, i: Any) -> None:
    x[i]
    raise KeyError


def indexes_on_the_same_line(x: Any, i: Any) -> None: x[i]; raise KeyError  # noqa: E701, E702


def indexes_on_many_lines(x: Any, i: Any) -> None:
    (x +
     x[
         i
     ])
    raise KeyError


def indexes_in_a_callee(x: Any, i: Any) -> None:
    def callee() -> Any:
        return x[i]
    callee()
    raise KeyError


def indexes_in_a_comprehension(x: Any, i: Any) -> None:
    [x[each] for each in [i]]
    raise KeyError


def indexes_in_a_generator(x: Any, i: Any) -> None:
    def parts() -> Any:
        yield x[i]
    list(parts())
    raise KeyError


def indexes_in_reduce(x: Any, i: Any) -> None:
    functools.reduce(lambda a, b: a[b], [x, i])
    raise KeyError


def indexes_under_with(x: Any, i: Any) -> None:
    with torch.no_grad():
        x[i]
    raise KeyError


def indexes_under_finally(x: Any, i: Any) -> None:
    try:
        x[i]
    finally:
        x.add_(1)
    raise KeyError


def finally_raises_another(x: Any, i: Any) -> None:
    try:
        x[i]
    finally:
        if x.shape[0] == 3:
            raise KeyError
    raise KeyError


def finally_raises_if_interrupted(x: Any, i: Any) -> None:
    done = False
    try:
        x[i]
        done = True
    finally:
        if not done:
            raise ValueError
    raise KeyError


def finally_returns(x: Any, i: Any) -> Any:
    def callee() -> Any:
        try:
            x[i]
        finally:
            return 1  # noqa: B012
    callee()
    raise KeyError


def handles_the_error(x: Any, i: Any) -> Any:
    try:
        x[i]
    except IndexError:
        return 5
    raise KeyError


def handles_another_error(x: Any, i: Any) -> Any:
    try:
        x[i]
    except KeyError:
        return 5
    raise KeyError


def handles_a_group(x: Any, i: Any) -> None:
    try:
        x[i]
    except* IndexError:
        pass
    raise KeyError


def embeds(x: Any, i: Any) -> None:
    torch.nn.functional.embedding(i, x[:, None])
    raise KeyError


def writes_by_index(x: Any, i: Any) -> None:
    x.clone()[i] = 2
    raise KeyError


def divides_integers(x: Any, i: Any) -> None:
    i // (i - 7)
    raise KeyError


def inverts(x: Any, i: Any) -> None:
    torch.linalg.inv(torch.zeros(2, 2) + (i - 7))
    raise KeyError


def reshapes(x: Any, i: Any) -> None:
    (x > 0).nonzero().reshape(-1, 3)
    raise KeyError


def writes_to_one_place_twice(x: Any, i: Any) -> None:
    x.expand(2, 3).add_(1)
    raise KeyError


def writes_to_what_it_reads(x: Any, i: Any) -> None:
    x[1:].mul_(x[:-1])
    raise KeyError


def runs_an_operator(x: Any, i: Any) -> None:
    limited(x * 1000)
    raise KeyError


def runs_an_operator_that_writes(x: Any, i: Any) -> None:
    written(x)
    raise KeyError


def divides_by_an_item(x: Any, i: Any) -> None:
    1 / (i.item() - 7)
    raise KeyError


def asks_for_too_much(x: Any, i: Any) -> None:
    torch.empty(10**15)
    raise KeyError


PROGRAMS = [
    indexes, indexes_on_the_same_line, indexes_on_many_lines, indexes_in_a_callee, indexes_in_a_comprehension,
    indexes_in_a_generator, indexes_in_reduce, indexes_under_with, indexes_under_finally, finally_raises_another,
    finally_raises_if_interrupted, finally_returns, handles_the_error, handles_another_error, handles_a_group, embeds,
    writes_by_index, divides_integers, inverts, reshapes, writes_to_one_place_twice, writes_to_what_it_reads,
    runs_an_operator, runs_an_operator_that_writes, divides_by_an_item, asks_for_too_much]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_operation_fails_first(program: Callable[..., Any]) -> None:
    same_as_eager(program, INDEX, INDEX * 0, fullgraph=True)


def breaks_and_indexes(x: Any, i: Any) -> None:
    y = x + 1
    stator.graph_break()
    y[i]
    raise KeyError


def test_an_operation_fails_first_after_a_break() -> None:
    same_as_eager(breaks_and_indexes, INDEX, INDEX * 0)


def test_arguments_that_share_memory() -> None:
    def program(a: Any, b: Any) -> None:
        a.mul_(b)
        raise KeyError

    function = stator.compile(program, backend="eager", options={"strict": True}, fullgraph=True)
    for overlap in (False, True, False):
        def pair(overlap: bool = overlap) -> tuple[torch.Tensor, torch.Tensor]:
            base = torch.arange(6.0)
            return base[1:4], base[:3] if overlap else base[:3].clone()
        assert ending(function, *pair()) == ending(program, *pair())


# ---------------------------------------------------------------------- output


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("no space left")


def prints(x: Any, i: Any) -> None:
    print("text", x.shape)
    raise KeyError


@pytest.mark.parametrize("stream", ["python", "closed"])
def test_output_fails_first(stream: str) -> None:
    target = Full() if stream == "python" else io.TextIOWrapper(io.BytesIO())
    if stream == "closed":
        target.close()
    with contextlib.redirect_stdout(target):
        same_as_eager(prints, INDEX)
    assert sys.stdout is not target


# ---------------------------------------------------------------------- wrong traces are reported as before


def wrong_rule(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    raise Raised(KeyError("only the trace raises"))


def formats_after_an_index(x: Any, i: Any) -> None:
    x[i]
    print(end="")
    raise IndexError("{}".format(3))  # noqa: UP032


def returns_after_an_index(x: Any, i: Any) -> Any:
    x[i]
    return "{}".format(3)  # noqa: UP032


@pytest.mark.parametrize("program, found", [(formats_after_an_index, "raises IndexError"),
                                            (returns_after_an_index, "does not raise")])
def test_a_wrong_trace_after_what_may_fail(monkeypatch: Any, program: Callable[..., Any], found: str) -> None:
    monkeypatch.setitem(RULES, id(str.format), wrong_rule)
    function = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    with pytest.raises(stator.InternalError, match=found):
        function(x(), INDEX * 0)
    with pytest.raises(IndexError, match="out of bounds"):
        function(x(), INDEX)


@pytest.mark.parametrize("program", [indexes, finally_raises_if_interrupted, writes_to_one_place_twice, runs_an_operator,
                                     asks_for_too_much])
def test_switch_lines_before_the_ending_are_known(monkeypatch: Any, program: Callable[..., Any]) -> None:
    monkeypatch.setattr(eager_calls.ExpectedError, "is_preceded_by", lambda self, error, traceback: False)
    with pytest.raises(AssertionError):
        same_as_eager(program, INDEX, fullgraph=True)
