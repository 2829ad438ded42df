"""Functions that inspect their callers find the program's: logging, warnings, tracebacks of caught exceptions."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events

X = torch.tensor([1.0, -2.0, 3.0])
logger = logging.getLogger("tests.breaks.callers")
child = logger.getChild("child")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        exc = record.exc_info and (record.exc_info[0], lines_of(record.exc_info[2]))
        self.records.append((record.getMessage(), record.levelname, record.lineno, record.funcName, record.filename,
                             record.__dict__.get("user"), exc, record.stack_info))


def lines_of(tb: Any) -> list[Any]:
    own = ("stator/", "<stator")
    return [(frame.name, frame.lineno) for frame in traceback.extract_tb(tb)
            if not any(part in frame.filename for part in own) or "tests/" in frame.filename]


def told(program: Any) -> Any:
    """Log records and warnings of two calls."""
    kept = Kept()
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            values = [calls_it(program).tolist() for _ in range(2)]
    finally:
        logger.removeHandler(kept)
    return values, kept.records, [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


def calls_it(program: Any) -> Any:
    return program(X.clone())


def log_keywords(x):
    logger.info("n %s", 3, extra={"user": 5})
    logger.warning("above", stacklevel=2)
    logger.warning("further up", stacklevel=3)
    logger.error("e %s", "q", exc_info=False, stack_info=False)
    child.debug("child %(a)s", {"a": 1})
    return x + 1


def helper(x):
    logger.warning("my caller", stacklevel=2)
    warnings.warn("my caller", stacklevel=2)
    warnings.warn("outside", stacklevel=3)
    return x * 2


def from_a_helper(x):
    return helper(x) + 1


def warn_levels(x):
    warnings.warn("here")
    warnings.warn("above", DeprecationWarning, stacklevel=2)
    warnings.warn("further up", stacklevel=3)
    warnings.warn("nowhere", stacklevel=400)
    return x + 1


def after_a_break(x):
    stator.graph_break()
    warnings.warn("above", stacklevel=2)
    logger.info("above", stacklevel=2)
    return x + 1


def with_an_exception(x):
    try:
        raise ValueError("v")
    except ValueError:
        logger.error("bad", exc_info=True)
        logger.exception("worse %s", 1)
    return x + 1


def after_a_change(x):
    logger.info("x is %s", x.sum())
    x.add_(1)
    logger.info("x is %s", x.sum())
    warnings.warn("changed")
    return x * 2


# Told natively, a stacklevel beyond the calling frame meets frames of Stator's.
@pytest.mark.parametrize("program, option", [
    *((program, "replay") for program in (log_keywords, from_a_helper, warn_levels, after_a_break, with_an_exception,
                                          after_a_change)),
    (with_an_exception, "break"), (after_a_change, "break")])
def test_places_and_contents(program: Any, option: str) -> None:
    compiled = stator.compile(program, backend="eager", options={"strict": True, "print": option})
    assert told(compiled) == told(program)


def test_keywords_do_not_break() -> None:
    with events.record() as log:
        told(stator.compile(log_keywords, backend="eager", fullgraph=True))
        told(stator.compile(warn_levels, backend="eager", fullgraph=True))
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


def test_a_reserved_name_in_extra_raises_as_eager_does() -> None:
    def program(x):
        logger.error("m", extra={"message": 1})
        return x

    for function in (program, stator.compile(program, backend="eager")):
        with pytest.raises(KeyError, match="overwrite 'message'"):
            function(X)


# ---------------------------------------------------------------------- exceptions that are caught


@stator.disable
def fails(x):
    raise ValueError("f")


def inner(x):
    y = x + 1
    fails(y)
    return y


def caught_after_the_instruction(x):
    try:
        inner(x * 2)
    except ValueError as error:
        return error


def caught_and_raised_again(x):
    try:
        inner(x)
    except ValueError as error:
        raise RuntimeError("again") from error


def caught_twice(x):
    try:
        try:
            inner(x)
        except ValueError:
            x = x + 1
            raise
    except ValueError as error:
        return error


def caught_where_it_is_raised(x):
    stator.graph_break()
    try:
        raise KeyError("k")
    except KeyError as error:
        return error


def story(program: Any) -> Any:
    try:
        error = program(X)
    except Exception as raised:
        error = raised
    found = []
    while error is not None:
        found.append((type(error), str(error), [place for place in lines_of(error.__traceback__) if place[0] != "story"]))
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize("program", [caught_after_the_instruction, caught_and_raised_again, caught_twice,
                                     caught_where_it_is_raised], ids=lambda each: each.__name__)
def test_tracebacks_of_exceptions_that_were_caught(program: Any) -> None:
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        assert story(compiled) == story(program)


ASSERTS = """
def check(x):
    assert x.sum() > 0, "positive"
    return x + 1

def program(x):
    y = check(x)
    return y * 2
"""


def test_a_failed_assertion_of_the_graph_shows_the_programs_frames() -> None:
    names: dict[str, Any] = {}
    exec(compile(ASSERTS, "asserts.py", "exec"), names)
    compiled = stator.compile(names["program"], backend="eager", fullgraph=True)
    compiled(X)
    with pytest.raises(AssertionError, match="positive") as caught:
        compiled(-X)
    assert [(f.name, f.lineno) for f in traceback.extract_tb(caught.value.__traceback__)][1:] == [("program", 7),
                                                                                                ("check", 3)]
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert not caught.value.__suppress_context__ and sys.exc_info() == (None, None, None)


def test_names_of_values_that_meet() -> None:
    """The values of every suspended frame become parameters of one function, each under a name of its own."""
    def inner(result: torch.Tensor) -> torch.Tensor:
        stator.graph_break()
        return result + 1

    def outer(x: torch.Tensor) -> torch.Tensor:
        result, result_1, taken, run_native = x + 1, x + 2, x + 3, x + 4
        return inner(result) + result_1 + result + taken + run_native

    x = torch.ones(1)
    assert torch.equal(stator.compile(outer, backend="eager")(x), outer(x))


def said_by_a_helper(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def through_two(text: str) -> None:
    said_by_a_helper(text)
    warnings.warn(text + " again", stacklevel=2)


def recorded_below(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x.sort()[0]  # which may warn as it runs: the manager is entered natively, and warnings are made natively
        said_by_a_helper("one")
        through_two("two")
    return y, [(each.filename, each.lineno, str(each.message)) for each in seen]


def test_warnings_of_callees_that_run_natively_point_at_their_callers() -> None:
    compiled = stator.compile(recorded_below, backend="eager")
    for x in (X, X, X[:2]):
        with events.record() as log:
            value, seen = compiled(x)
        expected, wanted = recorded_below(x)
        assert torch.equal(value, expected) and seen == wanted
    assert not any(isinstance(event, events.InternalFailure) for event in log)
