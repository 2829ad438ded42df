"""Who decides what is captured: error_on_graph_break, disable, skip_frame (stances: test_stances)."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.settings import marks
from tests.breaks.capture import compare
from tests.comparison import call, same_as_eager

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
    assert stator.settings.marks.error_policy() is None


def test_false_inside_fullgraph_allows_breaks() -> None:
    seen = compare(region_inside_allows, [(X,), (X,)], fullgraph=True)
    assert seen.breaks == ["SB009"] and len(seen.graph_modules) == 2
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
    assert stator.settings.marks.error_policy() is None


@pytest.mark.parametrize("around", [None, False])
def test_a_call_that_fails_leaves_the_regions_it_entered(around: bool | None) -> None:
    compiled = stator.compile(fails_inside_a_region, backend="eager")
    for _ in range(2):
        before = stator.settings.marks.set_error_policy(around)
        try:
            with pytest.raises(stator.Unsupported, match="here"):
                compiled(X)
            assert stator.settings.marks.error_policy() is around
        finally:
            stator.settings.marks.set_error_policy(before)


def test_decorators_and_nesting() -> None:
    with pytest.raises(stator.Unsupported, match="SB009") as caught:
        stator.compile(calls_decorated, backend="eager")(X)
    assert [frame.function for frame in caught.value.stack] == ["calls_decorated", "decorated"]
    seen = compare(nested_regions, [(X,), (X,)])
    assert seen.breaks == ["SB009", "SB009"]
    assert stator.settings.marks.error_policy() is None


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
    assert seen.breaks == ["SB010"] and len(seen.graph_modules) == 2
    seen = compare(calls(frame_off), [(X,), (X,)])
    assert seen.breaks == ["SB010"] and len(seen.graph_modules) == 3
    assert any(event.name == "plain" for event in seen.of(events.CaptureFinished))
    seen = compare(calls(frame_off), [(X,)], options={"compile_nested": False})
    assert len(seen.graph_modules) == 2


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
    assert [type(event) for event in log] == [events.EagerFallback] * 2
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
        assert stator.settings.marks.error_policy() is None


def test_regions_around_a_compiled_function_and_under_it() -> None:
    around = stator.error_on_graph_break(False)(stator.compile(calls(stator.graph_break), backend="eager", fullgraph=True))
    with pytest.raises(TypeError):
        around(X)  # None - 1: the program's own error, after an allowed break
    under = stator.compile(stator.error_on_graph_break()(calls(off)), backend="eager")
    with pytest.raises(stator.Unsupported, match="SB010"):
        under(X)


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


# ---------------------------------------------------------------------- inference mode


@torch.inference_mode()
def broken_under_inference_mode(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    time.sleep(0)
    return y * 2


def broken_twice(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        y = x + 1
        time.sleep(0)
        z = broken_under_inference_mode(y)
    return z.clone() * 2


def raises_under_it(x: torch.Tensor) -> Any:
    try:
        with torch.inference_mode():
            time.sleep(0)
            y = x * 2
            raise KeyError("inside")
    except KeyError as error:
        return str(error), y, torch.is_inference_mode_enabled()


@pytest.mark.parametrize("program", [broken_under_inference_mode, broken_twice, raises_under_it])
def test_breaks_under_inference_mode_leave_graphs(program: Any) -> None:
    """Entering the mode is a break of its own then; the whole call ran eagerly."""
    report = same_as_eager(program, call(torch.ones(2)), fullgraph=False)
    assert report.graph_modules and not report.fallbacks
