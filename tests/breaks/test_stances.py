"""Stances, which say whether calls may be compiled at all, and the limit of how often one may be."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.errors import RecompileForbidden
from stator.settings import stance
from tests.breaks.capture import compare
from tests.comparison import Report

X = torch.tensor([1.0, -2.0, 3.0])


def plain(x):
    return torch.relu(x) + 1


FORCED = events.EagerFallback("plain", "the stance is 'force_eager'", __file__, plain.__code__.co_firstlineno)

# ---------------------------------------------------------------------- stances


@pytest.mark.parametrize("stance, first, second", [
    ("default", 1, 0), ("force_eager", 0, 0), ("eager_on_recompile", 0, 0), ("eager_then_compile", 0, 1)])
def test_every_stance_as_decorator_call_and_context(stance: str, first: int, second: int) -> None:
    for way in ("decorator", "call", "context"):
        compiled = stator.compile(plain, backend="eager")
        if way == "decorator":
            run = stator.set_stance(stance)(lambda x, compiled=compiled: compiled(x))
            assert [captures(called(run, X)), captures(called(run, X))] == [first, second]
        elif way == "context":
            with stator.set_stance(stance):
                assert [captures(called(compiled, X)), captures(called(compiled, X))] == [first, second]
        else:
            stator.set_stance(stance)
            try:
                assert [captures(called(compiled, X)), captures(called(compiled, X))] == [first, second]
            finally:
                stator.set_stance("default")
        assert stator.settings.stance.current() == "default"


def test_stances_nest_and_come_back_after_an_exception() -> None:
    with stator.set_stance("force_eager"):
        with pytest.raises(RecompileForbidden), stator.set_stance("fail_on_recompile"):
            stator.compile(plain, backend="eager")(X)
        assert stator.settings.stance.current() == "force_eager"
    assert stator.settings.stance.current() == "default"


def test_a_stance_that_is_entered_again() -> None:
    again = stator.set_stance("force_eager")
    for _ in range(2):
        with again:
            assert stator.settings.stance.current() == "force_eager"
            assert called(stator.compile(plain, backend="eager"), X).log == [FORCED]
        assert stator.settings.stance.current() == "default"


def captures(seen: Report) -> int:
    return len(seen.of(events.CaptureStarted))


def called(compiled: Any, *args: Any) -> Report:
    with events.record() as log:
        assert compiled(*args).equal(plain(*args))
    return Report(log=log)


def test_stances() -> None:
    compiled = stator.compile(plain, backend="eager")
    with stator.set_stance("eager_then_compile"):
        assert captures(called(compiled, X)) == 0
        assert captures(called(compiled, X)) == 1
    with stator.set_stance("force_eager"):
        assert called(compiled, X).log == [FORCED]
    with stator.set_stance("eager_on_recompile"):
        assert called(compiled, X).log == []
        assert captures(called(compiled, torch.ones(7))) == 0
    with stator.set_stance("fail_on_recompile"):
        assert called(compiled, X).log == []
        with pytest.raises(RecompileForbidden, match="float32"):
            compiled(torch.ones(7, 2))
    assert captures(called(compiled, torch.ones(7, 2))) == 1


def test_stance_as_call_and_decorator() -> None:
    compiled = stator.compile(plain, backend="eager")
    try:
        stator.set_stance("force_eager")
        assert called(compiled, X).log == [FORCED]
    finally:
        stator.set_stance("default")

    @stator.set_stance("force_eager")
    def eagerly(x):
        return compiled(x)

    assert called(eagerly, X).log == [FORCED]
    assert captures(called(compiled, X)) == 1
    with pytest.raises(stator.OptionError, match="force_eager"):
        stator.set_stance("force_eagr")


def test_stance_inside_captured_code() -> None:
    def program(x):
        y = x + 1
        with stator.set_stance("force_eager"):
            y = y * 2
        return y - 1

    seen = compare(program, [(X,), (X,)])
    assert seen.breaks[0] == "SB022"
    assert stator.settings.stance.current() == "default"


def test_a_stance_stops_resume_points_too() -> None:
    def program(x, n):
        stator.graph_break()
        return x + n

    compiled = stator.compile(program, backend="eager")
    compiled(X, 1)
    with stator.set_stance("eager_on_recompile"), events.record() as log:
        assert compiled(X, 2).equal(X + 2)
    assert not [event for event in log if isinstance(event, events.CaptureStarted)]


def test_disable_is_per_thread() -> None:
    compiled = stator.compile(plain, backend="eager")
    compiled(X)
    depths = []
    with stator.disable():
        thread = threading.Thread(target=lambda: depths.append(stator.settings.marks.disable_depth()))
        thread.start()
        thread.join()
    assert depths == [0]


# ---------------------------------------------------------------------- limits


def test_the_limit_is_told_once_and_loudly() -> None:
    def program(x, kind):
        return x.to(kind)

    kinds = (torch.float64, torch.float16, torch.int8, torch.int16, torch.float64)
    compiled = stator.compile(program, backend="eager", recompile_limit=2)
    with warnings.catch_warnings(record=True) as caught, events.record() as log:
        warnings.simplefilter("always")
        for kind in kinds:
            assert compiled(X, kind).equal(X.to(kind))
    told = [str(warning.message) for warning in caught if "recompile limit" in str(warning.message)]
    assert len(told) == 1
    assert "compiled 2 times" in told[0] and "kind" in told[0] and "eagerly" in told[0] and __file__ in told[0]
    assert len([event for event in log if isinstance(event, events.CacheLimit)]) == 1
    assert len([event for event in log if isinstance(event, events.EagerFallback)]) == 2


def test_a_text_that_keeps_changing_is_no_longer_baked_in() -> None:
    def program(x, name):
        y = x * 2
        return y + len(name), f"{name}!", name

    compiled = stator.compile(program, backend="eager", recompile_limit=2)
    with warnings.catch_warnings(record=True) as caught, events.record() as log:
        warnings.simplefilter("always")
        for name in ("a", "bb", "ccc", "dddd", "a", "eeeee", "", "ccc"):
            got, text, same = compiled(X, name)
            assert got.equal(X * 2 + len(name)) and text == f"{name}!" and same is name
    told = [str(warning.message) for warning in caught if "recompile limit" in str(warning.message)]
    assert len(told) == 1 and "'ccc'" in told[0] and "no longer baked in" in told[0]
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
    assert len([event for event in log if isinstance(event, events.CaptureFinished)]) <= 4


def test_the_limit_is_an_error_under_fullgraph() -> None:
    def program(x, name):
        return x + len(name)

    compiled = stator.compile(program, backend="eager", recompile_limit=1, fullgraph=True)
    compiled(X, "a")
    with pytest.raises(stator.Unsupported, match="SB021"):
        compiled(X, "b")


@stator.set_stance("force_eager")
def called_in_a_stance(x):
    return x + 1


def calls_it(x):
    y = called_in_a_stance(x * 2)
    return y, stance.current()


def test_a_function_with_a_stance_of_its_own_inside() -> None:
    seen = compare(calls_it, [(X,), (X,)])
    assert set(seen.breaks) == {"SB022"} and stance.current() == "default"


def reads_the_stance(x):
    return x + 1, stance.current()


def test_the_stance_is_read_where_the_call_is_made() -> None:
    compiled = stator.compile(reads_the_stance, backend="eager")
    assert compiled(X)[1] == "default"
    with stator.set_stance("eager_on_recompile"):
        assert compiled(X)[1] == "eager_on_recompile"
    assert compiled(X)[1] == "default"
