"""Fullgraph means captured: each way to an eager run leaves an event, and under fullgraph it raises.

In:  programs whose call cannot be captured, whose trace is wrong, or whose graph fails.
Out: the events of each call, its value beside eager's, and the error under fullgraph.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import json
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.breaks import Strategy
from stator.emit.residual import eager_calls
from stator.interp.frame import Raised
from stator.interp.rule_registry import RULES
from stator.library.python import text_formatting
from tests.own_process import in_own_process

X = torch.tensor([1.0, -2.0, 3.0])
HERE = __file__


class Log(list[events.Event]):
    """Events of one call."""

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self if isinstance(event, kinds)]

    @property
    def fallbacks(self) -> list[str]:
        return [event.why for event in self.of(events.EagerFallback)]


def called(function: Callable[..., Any], *args: Any) -> tuple[Any, Log, list[str]]:
    """The value or exception of a call, its events, its warnings."""
    with events.record() as log, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            value = function(*args)
        except Exception as error:
            value = error
    return value, Log(log), [str(each.message) for each in warned]


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return stator.compile(function, backend=options.pop("backend", "eager"), **options)


# ---------------------------------------------------------------------- the program raises


def raises(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    if y.dim() == 1:
        raise ValueError("of the program")
    return y


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_exception_of_the_program_is_its_own_and_leaves_an_event(fullgraph: bool) -> None:
    function = compiled(raises, fullgraph=fullgraph, options={"strict": True})
    for _ in range(2):
        value, log, warned = called(function, X)
        assert type(value) is ValueError and str(value) == "of the program" and not warned
        assert log.of(events.ProgramRaised) == [
            events.ProgramRaised("raises", "ValueError", HERE, raises.__code__.co_firstlineno + 3)]
        assert not log.of(events.EagerFallback, events.InternalFailure)
    assert called(function, X[None])[0].equal(X[None] + 1)


def test_a_class_made_by_the_call_is_expected_by_its_name() -> None:
    def own(x: torch.Tensor) -> None:
        class OwnError(Exception):
            pass
        raise OwnError(x.shape)

    function = compiled(own, fullgraph=True, options={"strict": True})
    for _ in range(2):
        assert type(called(function, X)[0]).__name__ == "OwnError"


# ---------------------------------------------------------------------- the trace is wrong


def wrong_rule(vm: Any, args: Any, kwargs: Any, cont: Any) -> None:
    raise Raised(KeyError("only the trace raises"))


@pytest.fixture
def wrong_format() -> Iterator[None]:
    """str.format raises in a trace, and in no program."""
    known = RULES[id(str.format)]
    RULES[id(str.format)] = wrong_rule
    eager_calls._told.clear()
    yield
    RULES[id(str.format)] = known


def formats(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    text = "{}".format(3)  # noqa: UP032
    return x + 1, text


def breaks_and_formats(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    y = x * 2
    stator.graph_break()
    return y, "{}".format(3)  # noqa: UP032


def formats_and_raises(x: torch.Tensor) -> None:
    raise IndexError("{}".format(3))  # noqa: UP032


@pytest.mark.usefixtures("wrong_format")
@pytest.mark.parametrize("program", [formats, breaks_and_formats])
def test_a_wrong_trace_is_reported(program: Callable[..., Any]) -> None:
    function = compiled(program)
    for number in range(3):
        value, log, warned = called(function, X)
        assert value[0].equal(program(X)[0]) and value[1] == "3"
        [failure] = log.of(events.InternalFailure)
        assert "KeyError at" in str(failure.error) and HERE in str(failure.error)
        assert len([text for text in warned if "does not raise" in text]) == (number == 0)


@pytest.mark.usefixtures("wrong_format")
def test_a_wrong_trace_is_an_error_under_fullgraph() -> None:
    for options in ({"fullgraph": True}, {"options": {"strict": True}}):
        function = compiled(formats, **options)
        for _ in range(2):
            value, log, _ = called(function, X)
            assert isinstance(value, stator.InternalError) and "formats ended in KeyError" in str(value)
            assert log.of(events.InternalFailure)


@pytest.mark.usefixtures("wrong_format")
def test_another_exception_of_the_program_comes_first() -> None:
    value, log, _ = called(compiled(formats_and_raises, fullgraph=True), X)
    assert type(value) is IndexError and "raises IndexError" in str(log.of(events.InternalFailure)[0].error)
    value, _, _ = called(compiled(formats_and_raises, options={"strict": True}), X)
    assert isinstance(value, stator.InternalError) and type(value.__cause__) is IndexError


@pytest.mark.usefixtures("wrong_format")
def test_switch_the_ending_of_an_eager_run_is_compared(monkeypatch: Any) -> None:
    monkeypatch.setattr(eager_calls.ExpectedError, "is_raised_by", lambda self, error: True)
    monkeypatch.setattr(eager_calls, "EagerEntry", None)
    monkeypatch.setattr("stator.capture.stages.EagerEntry", lambda *args: lambda: eager_calls.run_as_it_is())
    value, log, _ = called(compiled(formats, fullgraph=True), X)
    assert value[1] == "3" and not log.of(events.InternalFailure, events.ProgramRaised), "the silence of before"


# ---------------------------------------------------------------------- a program that asks whether it is compiled


def asks(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        raise RuntimeError("not to be compiled")
    return x + 1


def breaks_and_asks(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    stator.graph_break()
    if torch.compiler.is_compiling():
        raise RuntimeError("not to be compiled")
    return y + 1


@pytest.mark.parametrize("program, fullgraph", [(asks, True), (asks, False), (breaks_and_asks, False)])
def test_a_branch_of_compiled_code_that_raises_is_not_taken(program: Callable[..., Any], fullgraph: bool) -> None:
    function = compiled(program, fullgraph=fullgraph)
    value, log, warned = called(function, X)
    assert value.equal(program(X)) and not warned and len(log.of(events.CaptureFinished)) == 1 + (program is not asks)
    assert not log.of(events.EagerFallback, events.ProgramRaised, events.InternalFailure)
    value, log, _ = called(function, X + 1)
    assert value.equal(program(X + 1)) and not log


def test_switch_a_trace_that_raises_is_made_again(monkeypatch: Any) -> None:
    monkeypatch.setattr("stator.capture.stages.hide_compiling", lambda site, done: False)
    assert isinstance(called(compiled(asks, fullgraph=True), X)[0], stator.InternalError)


def test_a_program_that_asks_still_sees_that_it_is_compiled() -> None:
    function = compiled(lambda x: x + 1 if torch.compiler.is_compiling() else x + 2, fullgraph=True)
    assert called(function, X)[0].equal(X + 1)
    assert Strategy.COMPILING_SHOWN not in function._stator_site.turned_off


# ---------------------------------------------------------------------- a graph that fails


def failing_backend(graph: Any, inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        raise RuntimeError("of the backend")
    return run


def test_a_graph_that_fails_alone() -> None:
    eager_calls._told.clear()
    value, log, warned = called(compiled(lambda x: x + 1, backend=failing_backend), X)
    assert value.equal(X + 1) and log.fallbacks == ["it raised RuntimeError: of the backend"] and len(warned) == 1
    value, log, _ = called(compiled(lambda x: x + 1, backend=failing_backend, fullgraph=True), X)
    assert isinstance(value, stator.InternalError) and "of the backend" in str(value) and log.fallbacks


def test_a_capture_that_fails_by_a_bug(monkeypatch: Any) -> None:
    def bug(*args: Any) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr("stator.capture.stages.emit_residual", bug)
    value, log, warned = called(compiled(lambda x: x + 1), X)
    assert value.equal(X + 1) and log.of(events.InternalFailure) and len(warned) == 1
    value, log, _ = called(compiled(lambda x: x + 1, fullgraph=True), X)
    assert isinstance(value, stator.InternalError) and log.of(events.InternalFailure)


# ---------------------------------------------------------------------- no capture now


def weakly(x: torch.Tensor) -> tuple[Any, torch.Tensor]:
    found: list[int] = []

    class Own:
        pass
    own = Own()
    end = weakref.finalize(own, found.append, 1)
    del own
    return (not end.alive, found), x + 1


def test_a_break_that_takes_the_whole_call_leaves_an_event_each_time() -> None:
    function = compiled(weakly)
    for number in range(2):
        value, log, _ = called(function, X)
        assert value[0] == (True, [1]) and value[1].equal(X + 1)
        [event] = log.of(events.EagerFallback)
        assert (event.filename, event.line) == (HERE, weakly.__code__.co_firstlineno + 6)
        assert bool(log.of(events.GraphBreak)) == (number == 0)
    value, log, _ = called(compiled(weakly, fullgraph=True), X)
    assert isinstance(value, stator.Unsupported)


def test_replaced_builtins() -> None:
    function, strictly = compiled(lambda x: x + len([1])), compiled(lambda x: x + len([1]), fullgraph=True)

    def replace_and_call() -> None:
        builtins.len = lambda value: 5  # type: ignore[assignment]
        value, log, _ = called(function, X)
        assert value.equal(X + 5) and log.fallbacks == ["builtins.len was replaced, and Stator needs Python's own"]
        value, log, _ = called(strictly, X)
        assert isinstance(value, stator.Unsupported) and value.code == "SB025"

    in_own_process(replace_and_call)  # other threads of this one call len, too


def test_torch_jit_trace() -> None:
    value, log, _ = called(lambda x: torch.jit.trace(compiled(lambda x: x + 1), x)(x), X)
    assert value.equal(X + 1) and log.fallbacks[0] == "torch.jit.trace is running"
    value, log, _ = called(lambda x: torch.jit.trace(compiled(lambda x: x + 1, fullgraph=True), x), X)
    assert isinstance(value, stator.Unsupported) and value.code == "SB025"


def test_values_nested_too_deep() -> None:
    nested: list[Any] = []
    for _ in range(30_000):
        nested = [nested]
    program = lambda x, values: (x + 1, values)  # noqa: E731
    value, log, _ = called(compiled(lambda x: (x + 1, repr(nested[:0]), nested)), X)
    assert value[0].equal(X + 1)
    value, log, _ = called(compiled(program), X, nested)
    assert value[0].equal(X + 1) and value[1] is nested
    while nested:  # a list that deep is taken apart by hand
        nested = nested.pop()


def in_another_thread(lock: threading.Lock) -> Callable[[], None]:
    """Hold a lock in another thread until the returned function is called."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    return lambda: (over.set(), thread.join())  # type: ignore[func-returns-value, return-value]


def test_a_lock_that_another_thread_holds() -> None:
    lock = threading.Lock()

    def program(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return x + 1

    function = compiled(program, fullgraph=True)
    assert called(function, X)[0].equal(X + 1)
    release = in_another_thread(lock)
    threading.Timer(0.05, release).start()
    value, log, _ = called(function, X)
    assert value.equal(X + 1) and log.fallbacks == ["another thread holds a lock that the program takes"]


# ---------------------------------------------------------------------- eager on request


def plain(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def under_a_stance(function: Any, x: torch.Tensor) -> Any:
    with stator.set_stance("force_eager"):
        return function(x)


def under_disable(function: Any, x: torch.Tensor) -> Any:
    return stator.disable(lambda: function(x))()


def stepped(function: Any, x: torch.Tensor) -> Any:
    seen: list[str] = []

    def step(frame: Any, event: str, arg: Any) -> Any:
        seen.append(frame.f_code.co_name)
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        return function(x)
    finally:
        sys.settrace(before)
        assert set(seen) <= {"plain", "stepped"}, "a debugger sees the program alone"


def under_eager_on_recompile(function: Any, x: torch.Tensor) -> Any:
    with stator.set_stance("eager_on_recompile"):
        return function(x[None])[0]


@pytest.mark.parametrize("way, why", [
    (under_a_stance, "the stance is 'force_eager'"), (under_disable, "compilation is disabled here"),
    (stepped, "sys.settrace is in use"), (under_eager_on_recompile, "the stance is 'eager_on_recompile'")])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_eager_on_request_leaves_an_event(way: Callable[..., Any], why: str, fullgraph: bool) -> None:
    function = compiled(plain, fullgraph=fullgraph)
    assert called(function, X)[0].equal(X + 1)
    for _ in range(2):
        value, log, _ = called(way, function, X)
        assert value.equal(X + 1) and log.fallbacks == [why]
    assert called(function, X)[1] == []


def test_a_disabled_function_leaves_an_event() -> None:
    value, log, _ = called(compiled(stator.disable(plain)), X)
    assert value.equal(X + 1) and log.fallbacks


def test_the_recompile_limit_leaves_an_event() -> None:
    program = lambda x, n: x + len(n)  # noqa: E731
    function = compiled(program, fullgraph=True, recompile_limit=1)
    called(function, X, "a")
    value, _, _ = called(function, X, "bc")
    assert isinstance(value, stator.Unsupported) and value.code == "SB021"


def test_a_lazy_module_is_initialised_eagerly_and_leaves_an_event() -> None:
    module = torch.nn.LazyLinear(2)
    function = stator.compile(module, backend="eager", fullgraph=True)
    value, log, _ = called(function, X[None])
    assert value.equal(module(X[None])) and log.fallbacks
    value, log, _ = called(function, X[None])
    assert not log.fallbacks and log.of(events.CaptureFinished)


# ---------------------------------------------------------------------- one instruction, and not the whole call


def dumps(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return x + 1, json.dumps({"b": x.sum().item(), "a": [1, None, "é"]}, sort_keys=True)


def dumps_strictly(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return x + 1, json.dumps([x.sum().item()], allow_nan=False, separators=(",", ":"), check_circular=False)


def groups(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    key, group = next(itertools.groupby([1, 1, 2]))
    return x + key, type(group).__name__, group


def groups_in_a_loop(x: torch.Tensor) -> Any:
    kept = []
    for key, group in itertools.groupby([1, 1, 2, 3]):
        kept.append((x + key, group))
    return kept


def plainly(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [plainly(each) for each in value] if isinstance(value, (list, tuple)) else \
        value if isinstance(value, (str, int, float)) else list(value)


@pytest.mark.parametrize("program", [dumps, dumps_strictly, groups, groups_in_a_loop])
def test_a_value_that_cannot_be_rebuilt_breaks_where_it_is_made(program: Callable[..., Any]) -> None:
    function = compiled(program, options={"strict": True})
    for number in range(12):
        x = X + number
        value, log, _ = called(function, x)
        assert plainly(value) == plainly(program(x))
        assert not log.fallbacks and not log.of(events.InternalFailure)
        assert number < 10 or not log.of(events.CaptureStarted), "traced again"
    value, _, _ = called(compiled(program, fullgraph=True), X)
    assert isinstance(value, stator.Unsupported) and value.line is not None
    gc.collect()


def test_switch_breaks_where_it_is_made(monkeypatch: Any) -> None:
    monkeypatch.setattr("stator.interp.calls.native_calls.refuse_not_rebuilt", lambda self, result: None)
    assert called(compiled(groups), X)[1].fallbacks, "the whole call runs eagerly"


# ---------------------------------------------------------------------- arrays that come from no tensor


def counts(n: int) -> Any:
    import numpy
    values = numpy.arange(n)
    values[0] = 5
    return values.sum()


def writes(array: Any) -> Any:
    array += 1
    return array * 2


def test_arrays_of_the_call_are_constants_under_guards() -> None:
    import numpy
    function = compiled(counts, fullgraph=True)
    for n in (3, 3, 4):
        value, log, _ = called(function, n)
        assert value == counts(n) and type(value) is type(counts(n)) and not log.fallbacks
    function = compiled(writes, fullgraph=True)
    for start in (1.0, 1.0, 2.0, 7.0):
        mine, theirs = numpy.full(3, start), numpy.full(3, start)
        value, log, _ = called(function, mine)
        expected = writes(theirs)
        assert (value == expected).all() and (mine == theirs).all() and not log.fallbacks


def test_formats_that_string_formatter_does_not_count() -> None:
    assert text_formatting._number_fields("{[a]}{.b:{}}{{x}}", itertools.count()) == "{0[a]:}{1.b:{2:}}{{x}}"
