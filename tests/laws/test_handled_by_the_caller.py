"""The exception that the caller of a compiled function is handling: what the function sees of it, in any order of calls."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from tests.comparison import Programs

PROGRAMS = Programs()


@PROGRAMS
def asked(x: torch.Tensor) -> Any:
    return x + 1, sys.exc_info()[:2], sys.exception()


@PROGRAMS
def context_of_an_error_of_the_program(x: torch.Tensor) -> Any:
    try:
        raise ValueError("inner")
    except ValueError as error:
        return x + 1, error.__context__


@PROGRAMS
def context_of_an_error_of_c_code(x: torch.Tensor) -> Any:
    try:
        x.nothing  # noqa: B018
    except AttributeError as error:
        return x + 1, error.__context__, sys.exc_info()[0]


@PROGRAMS
def kept_error(x: torch.Tensor) -> Any:
    error = KeyError("kept")
    with contextlib.suppress(KeyError):
        raise error
    return x + 1, error, sys.exception()


@PROGRAMS
def raised_again(x: torch.Tensor) -> Any:
    x = x + 1
    raise  # noqa: PLE0704


@PROGRAMS
def raised_again_and_handled(x: torch.Tensor) -> Any:
    def again() -> None:
        raise  # noqa: PLE0704

    try:
        again()
    except (RuntimeError, OSError) as error:
        return x + 1, str(error)


@PROGRAMS
def left_by_an_error(x: torch.Tensor) -> Any:
    raise KeyError("left")


@PROGRAMS
def in_a_generator(x: torch.Tensor) -> Any:
    def body() -> Iterator[Any]:
        try:
            yield x + 1
        except ValueError as error:
            yield error.__context__
        yield sys.exception()

    generator = body()
    return next(generator), generator.throw(ValueError("thrown")), next(generator)


def seen_of(error: BaseException | None) -> Any:
    return error and (type(error), error.args, seen_of(error.__context__))


def seen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, BaseException):
        return seen_of(value)
    return tuple(map(seen, value)) if isinstance(value, tuple) else value


def outcome(function: Callable[..., Any]) -> Any:
    try:
        return seen(function(torch.ones(2)))
    except Exception as error:  # an outcome to compare
        return seen_of(error)


@pytest.mark.parametrize("handles", [(False, True, False), (True, False, True)], ids=["without first", "with first"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_exception_of_the_caller(name: str, handles: tuple[bool, ...]) -> None:
    def outcomes(function: Callable[..., Any]) -> Iterator[Any]:
        for number, handling in enumerate(handles):
            if not handling:
                yield outcome(function)
                continue
            try:
                raise OSError(f"outer {number}")
            except OSError:
                yield outcome(function)

    with stator.events.record() as log:
        found = list(outcomes(stator.compile(PROGRAMS[name], backend="eager")))
    assert found == list(outcomes(PROGRAMS[name]))
    assert not [event for event in log if isinstance(event, stator.events.InternalFailure)]


def test_a_list_becomes_an_iterator_and_a_tuple_gets_objects_with_eq() -> None:
    class Loud:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    summed = stator.compile(lambda x, given: x + sum(given), backend="eager")
    for given, total in (([1], 1), ([1, 2], 3), (iter([1, 2]), 3), (iter({3: 4}), 3), (zip(), 0), (range(5, 7), 11)):
        assert summed(torch.zeros(1), given).item() == total
    first = stator.compile(lambda x, given: x + 1 if given[0] is given[1] else x, backend="eager")
    for pair in ((1, 2), (2, 3), (Loud(), Loud())):
        assert first(torch.zeros(1), pair).item() == 0
