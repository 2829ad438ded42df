"""Who decides what is captured: error_on_graph_break, disable, skip_frame, set_stance, recompile limits."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events, marks, stance
from stator.errors import RecompileForbidden
from tests.breaks.capture import Seen, compare

X = torch.tensor([1.0, -2.0, 3.0])


# ---------------------------------------------------------------------- error_on_graph_break


def region_inside(x):
    y = x + 1
    stator.graph_break()
    with stator.error_on_graph_break(True):
        y = y * 2
        stator.graph_break("here")
    return y


def region_inside_allows(x):
    with stator.error_on_graph_break(False):
        y = x + 1
        stator.graph_break()
        y = y * 2
    return y - 1


@stator.error_on_graph_break(True)
def decorated(x):
    stator.graph_break()
    return x


def calls_decorated(x):
    stator.graph_break()
    return decorated(x + 1)


def nested_regions(x):
    with stator.error_on_graph_break(True):
        with stator.error_on_graph_break(False):
            stator.graph_break()
            x = x + 1
        x = x * 2
    stator.graph_break()
    return x


def test_a_region_in_captured_code_makes_breaks_errors() -> None:
    with pytest.raises(stator.Unsupported, match="SB009.*here") as caught:
        stator.compile(region_inside, backend="eager")(X)
    assert caught.value.line == region_inside.__code__.co_firstlineno + 5
    assert stator.marks.error_policy() is None


def test_false_inside_fullgraph_allows_breaks() -> None:
    seen = compare(region_inside_allows, [(X,), (X,)], fullgraph=True)
    assert seen.breaks == ["SB009"] and len(seen.graphs) == 2
    with pytest.raises(stator.Unsupported):
        stator.compile(nested_regions, backend="eager", fullgraph=True)(X)


def two_breaks_in_a_region(x):
    with stator.error_on_graph_break(False):
        stator.graph_break()
        x = x + 1
        stator.graph_break()
        x = x * 2
    return x


def fails_inside_a_region(x):
    with stator.error_on_graph_break(False):
        x = x + 1
        stator.graph_break()
        with stator.error_on_graph_break(True):
            stator.graph_break("here")
    return x


def test_a_region_goes_on_after_a_break_in_it() -> None:
    seen = compare(two_breaks_in_a_region, [(X,), (X,)], fullgraph=True)
    assert seen.breaks == ["SB009", "SB009"]
    assert stator.marks.error_policy() is None


@pytest.mark.parametrize("around", [None, False])
def test_a_call_that_fails_leaves_the_regions_it_entered(around: bool | None) -> None:
    compiled = stator.compile(fails_inside_a_region, backend="eager")
    for _ in range(2):
        before = stator.marks.set_error_policy(around)
        try:
            with pytest.raises(stator.Unsupported, match="here"):
                compiled(X)
            assert stator.marks.error_policy() is around
        finally:
            stator.marks.set_error_policy(before)


def test_decorators_and_nesting() -> None:
    with pytest.raises(stator.Unsupported, match="SB009") as caught:
        stator.compile(calls_decorated, backend="eager")(X)
    assert [frame.function for frame in caught.value.stack] == ["calls_decorated", "decorated"]
    seen = compare(nested_regions, [(X,), (X,)])
    assert seen.breaks == ["SB009", "SB009"]
    assert stator.marks.error_policy() is None


def test_a_region_around_the_call() -> None:
    def program(x):
        stator.graph_break()
        return x + 1

    with stator.error_on_graph_break(True), pytest.raises(stator.Unsupported):
        stator.compile(program, backend="eager")(X)
    with stator.error_on_graph_break(False):
        assert stator.compile(program, backend="eager", fullgraph=True)(X).equal(X + 1)
    with pytest.raises(stator.OptionError):
        stator.error_on_graph_break("yes")


# ---------------------------------------------------------------------- disable and skip_frame


def plain(x):
    return torch.relu(x) + 1


@stator.disable
def off(x):
    return plain(x) * 2


@stator.disable(recursive=False, reason="only this frame")
def frame_off(x):
    return plain(x) * 2


def calls(function):
    def program(x):
        return function(x + 1) - 1

    return program


def test_disable_reaches_below_and_not_recursive_does_not() -> None:
    seen = compare(calls(off), [(X,), (X,)])
    assert seen.breaks == ["SB010"] and len(seen.graphs) == 2
    seen = compare(calls(frame_off), [(X,), (X,)])
    assert seen.breaks == ["SB010"] and len(seen.graphs) == 3
    assert any(event.name == "plain" for event in seen.of(events.CaptureFinished))
    seen = compare(calls(frame_off), [(X,)], options={"compile_nested": False})
    assert len(seen.graphs) == 2


def test_compiling_a_function_whose_own_frame_is_left_alone() -> None:
    seen = compare(frame_off, [(X,), (X,)])
    assert not seen.breaks and [event.name for event in seen.of(events.CaptureFinished)] == ["plain"]


def region(x):
    y = x + 1
    with stator.disable():
        y = plain(y)
    return y * 2


def test_a_disabled_region_inside_captured_code() -> None:
    seen = compare(calls(region), [(X,), (X,)])
    assert seen.breaks == ["SB010"]
    names = [event.name for event in seen.of(events.CaptureFinished) if event.graph is not None]
    assert len(names) == 2, "before the frame with the region, and after it"
    assert "plain" not in names


def test_disable_stops_hits() -> None:
    calls_of: list[str] = []

    def program(x):
        calls_of.append("python")
        return x + 1

    compiled = stator.compile(program, backend="eager")
    compiled(X)
    with stator.disable(), events.record() as log:
        assert compiled(X).equal(X + 1)
        assert compiled(torch.ones(5)).shape == (5,)
    assert log == []
    with events.record() as log:
        compiled(X)
    assert log == [], "the entry is still there"


def skips(x):
    y = x + 1
    stator.skip_frame("slow to capture")
    return plain(y) * 2


def test_skip_frame_leaves_one_frame_alone() -> None:
    seen = compare(calls(skips), [(X,), (X,)])
    assert seen.breaks == ["SB023"]
    names = [event.name for event in seen.of(events.CaptureFinished) if event.graph is not None]
    assert "plain" in names and len(names) == 3
    assert compare(calls(stator.skip_frame(lambda x: plain(x) * 3)), [(X,)]).breaks == ["SB010"]


def test_skip_frame_with_exceptions_and_init() -> None:
    class Made:
        def __init__(self, x):
            stator.skip_frame()
            self.x = x + 1

    def program(x, n):
        made = Made(x * 2)
        try:
            fails(n)
        except ZeroDivisionError as error:
            return made.x, str(error)
        return made.x

    def fails(n):
        stator.skip_frame()
        return 1 / n

    compare(program, [(X, 0), (X, 1), (X, 0)])


class WithMethods:
    @stator.disable
    def method(self, x):
        return x + 1

    @staticmethod
    @stator.disable(reason="told why")
    def static(x):
        return x + 2

    @stator.disable(recursive=False)
    @classmethod
    def of_class(cls, x):
        return x + 3


@stator.disable
class OffClass:
    def __init__(self, x):
        self.x = plain(x)

    def __call__(self, x):
        return self.x + x


def test_disable_on_methods_classes_and_modules() -> None:
    seen = compare(lambda x: WithMethods().method(x) + WithMethods.static(x) + WithMethods.of_class(x), [(X,), (X,)])
    assert [event.cause.partition(".")[2] for event in seen.of(events.GraphBreak)] == [
        "method is disabled", "static is disabled: told why", "of_class is disabled"]
    seen = compare(lambda x: OffClass(x * 2)(x) + 1, [(X,), (X,)])
    assert seen.breaks == ["SB010", "SB010"]
    assert "plain" not in [event.name for event in seen.of(events.CaptureFinished)]
    module = stator.disable(torch.nn.Linear(3, 3))
    assert compare(lambda x: module(x) + 1, [(X,)]).breaks == ["SB010"]
    with pytest.raises(stator.OptionError, match="cannot be a context"), stator.disable(recursive=False):
        pass


def test_messages_of_graph_break() -> None:
    def program(x):
        stator.graph_break(msg="by name")
        return x

    with pytest.raises(stator.Unsupported, match="SB009.*by name"):
        stator.compile(program, backend="eager", fullgraph=True)(X)
    assert stator.graph_break("in plain Python") is None


def raises_in_a_region(x):
    with stator.error_on_graph_break(False):
        stator.graph_break()
        raise KeyError("mine")


def test_an_exception_leaves_its_regions() -> None:
    compiled = stator.compile(raises_in_a_region, backend="eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            compiled(X)
        assert stator.marks.error_policy() is None


def test_regions_around_a_compiled_function_and_under_it() -> None:
    around = stator.error_on_graph_break(False)(stator.compile(calls(stator.graph_break), backend="eager", fullgraph=True))
    with pytest.raises(TypeError):
        around(X)  # None - 1: the program's own error, after an allowed break
    under = stator.compile(stator.error_on_graph_break()(calls(off)), backend="eager")
    with pytest.raises(stator.Unsupported, match="SB010"):
        under(X)


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
        assert stator.stance.current() == "default"


def test_stances_nest_and_come_back_after_an_exception() -> None:
    with stator.set_stance("force_eager"):
        with pytest.raises(RecompileForbidden), stator.set_stance("fail_on_recompile"):
            stator.compile(plain, backend="eager")(X)
        assert stator.stance.current() == "force_eager"
    assert stator.stance.current() == "default"


def test_a_stance_that_is_entered_again() -> None:
    again = stator.set_stance("force_eager")
    for _ in range(2):
        with again:
            assert stator.stance.current() == "force_eager"
            assert called(stator.compile(plain, backend="eager"), X).log == []
        assert stator.stance.current() == "default"


def captures(seen: Seen) -> int:
    return len(seen.of(events.CaptureStarted))


def called(compiled: Any, *args: Any) -> Seen:
    with events.record() as log:
        assert compiled(*args).equal(plain(*args))
    return Seen(log)


def test_stances() -> None:
    compiled = stator.compile(plain, backend="eager")
    with stator.set_stance("eager_then_compile"):
        assert captures(called(compiled, X)) == 0
        assert captures(called(compiled, X)) == 1
    with stator.set_stance("force_eager"):
        assert called(compiled, X).log == []
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
        assert called(compiled, X).log == []
    finally:
        stator.set_stance("default")

    @stator.set_stance("force_eager")
    def eagerly(x):
        return compiled(x)

    assert called(eagerly, X).log == []
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
    assert stator.stance.current() == "default"


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
        thread = threading.Thread(target=lambda: depths.append(stator.marks.disable_depth()))
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


def asks_for_the_policy(x):
    found = [marks.error_policy()]
    with stator.error_on_graph_break(False):
        found.append(marks.error_policy())
        with stator.error_on_graph_break(True):
            found.append(marks.error_policy())
    return x + 1, found, marks.error_policy()


def test_the_policy_is_read_inside() -> None:
    assert not compare(asks_for_the_policy, [(X,), (X,)]).breaks


def nested_region(x):
    @torch.compiler.nested_compile_region
    def body(a, b):
        return a.sin() * b

    return body(x, 2) + body(x, b=3)


def test_a_nested_region_is_simply_called() -> None:
    assert not compare(nested_region, [(X,), (X + 1,)], fullgraph=True).breaks
