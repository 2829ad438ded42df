"""Messages of errors, the registry of breaks, and events with their text."""

import copy
import io
import pickle
import sys
import threading
import warnings

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import stator
from stator import breaks, errors, events, report

THIS_LINE = "the line of the break"
PLACE = 17


def make_break():
    stop = breaks.Break("SB002", "x.sum() > 0 is not known", why="gt")
    stop.filename, stop.line = __file__, PLACE
    stop.stack = (errors.UserFrame("outer.py", 3, "main"), errors.UserFrame(__file__, PLACE, "branch"))
    return stop


def test_unsupported_is_one_clear_message():
    text = str(make_break().as_unsupported())
    assert text.splitlines() == [
        f"SB002 data-dependent branch: x.sum() > 0 is not known, at {__file__}:{PLACE} in branch",
        '    THIS_LINE = "the line of the break"',
        "  called from outer.py:3 in main",
        f"  remedy: {breaks.REGISTRY['SB002'].remedy}",
        "  more: python -m stator code SB002",
    ]


def test_unsupported_without_a_stack_and_without_a_place():
    placed = errors.Unsupported("SB999", "title", "cause", "do it", "gone.py", 7)
    assert str(placed) == "SB999 title: cause, at gone.py:7\n  remedy: do it"
    assert str(errors.Unsupported("SB999", "title")) == "SB999 title"


@pytest.mark.parametrize(
    "error",
    [make_break().as_unsupported(), errors.BackendError("inductor", "failed"), errors.RecompileLimit("f: 8")],
)
def test_errors_survive_pickle(error):
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_a_break_passes_except_exception():
    with pytest.raises(breaks.Break) as stopped:
        try:
            raise breaks.Break("SB009")
        except Exception:
            pytest.fail("a user's handler must not see a break")
    assert stopped.value.cause == breaks.REGISTRY["SB009"].cause


def test_lines_are_told_to_those_who_ask():
    def program(x):
        y = x + 1
        if y.dim() == 1:
            y = y * 2
        return y

    first = program.__code__.co_firstlineno
    stator.compile(program, backend="eager")(torch.ones(2))  # what is known of the code makes no difference
    for wanted in (True, False):
        events.want_lines(wanted)
        with events.record() as log:
            assert stator.compile(program, backend="eager")(torch.ones(2)).tolist() == [4.0, 4.0]
        lines = [event.line - first for event in log if isinstance(event, events.LineTraced)]
        assert lines == ([0, 1, 2, 3, 4] if wanted else [])  # 0: where the frame begins


def test_break_codes_are_registered_and_complete():
    assert {f"SB{number:03}" for number in range(1, 26) if number != 12} == set(breaks.REGISTRY)
    for code, row in breaks.REGISTRY.items():
        assert row.code == code
        assert all((row.title, row.cause, row.example, row.remedy)), code
    titles = [row.title for row in breaks.REGISTRY.values()]
    assert len(titles) == len(set(titles))
    with pytest.raises(errors.InternalError, match="SB999"):
        breaks.Break("SB999")
    with pytest.raises(errors.InternalError, match="already registered"):
        breaks.register("SB001", "again", cause="c", example="e", remedy="r")
    with pytest.raises(errors.InternalError, match="not of the form"):
        breaks.register("B1", "again", cause="c", example="e", remedy="r")


def test_record_sees_all_threads_and_stops():
    with events.record() as log:
        assert events.listening()
        events.emit(events.EagerFallback("f", "why"))
        thread = threading.Thread(target=events.emit, args=(events.CacheLimit("f", 8),))
        thread.start()
        thread.join()
    events.emit(events.EagerFallback("g", "late"))
    assert log == [events.EagerFallback("f", "why"), events.CacheLimit("f", 8)]


def test_one_callback_subscribed_twice_is_ended_once_at_a_time():
    log = []
    first, second = events.subscribe(log.append), events.subscribe(log.append)
    events.emit(events.CacheLimit("f", 1))
    first()
    first()
    events.emit(events.CacheLimit("f", 2))
    second()
    events.emit(events.CacheLimit("f", 3))
    assert [event.limit for event in log] == [1, 1, 2]


def test_failing_listener_is_reported_and_harmless():
    def fail(event):
        raise ValueError("boom")

    unsubscribe = events.subscribe(fail)
    try:
        with events.record() as log, pytest.warns(RuntimeWarning, match="boom"):
            events.emit(events.CacheLimit("f", 1))
    finally:
        unsubscribe()
    assert len(log) == 1


def test_summary_counts_and_names_causes():
    log = [
        events.CaptureStarted("f", "a.py", 1),
        events.CaptureFinished("f", 10, 4, 0.25),
        events.GraphBreak.of(make_break()),
        events.GraphBreak.of(make_break()),
        events.Recompile("f", "a size changed", "x.size(0) == 3", "3", "4", "a.py", 2),
        events.EagerFallback("f", "break"),
        events.InternalFailure("f", KeyError("k")),
        events.CacheLimit("f", 8),
    ]
    text = report.summarize(log)
    assert text.startswith(
        "1 captures, 10 graph nodes, 4 guards, 0.25 s; 2 graph breaks, 1 recompiles, 1 eager calls"
    )
    assert "2x graph break: SB002 data-dependent branch" in text
    assert "was 3, is 4" in text and "guarded at a.py:2" in text
    assert "KeyError" in text and "captured 8 times" in text


def test_follow_prints_only_what_was_asked_for(monkeypatch):
    stream = io.StringIO()
    stop = report.follow(["graph_breaks"], stream)
    try:
        events.emit(events.CacheLimit("f", 8))
        events.emit(events.EagerFallback("f", "why"))
    finally:
        stop()
    assert stream.getvalue() == "stator: [graph_breaks] eager f: why\n"
    with pytest.raises(errors.OptionValueError, match="did you mean 'graph_breaks'"):
        report.follow(["graph_break"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        events.emit(events.EagerFallback("f", "nobody listens"))


def broken_graph(x):
    stator.graph_break()
    return x + 1


def failing(graph, inputs):
    raise LookupError("no such thing")


def raised(backend="eager", **settings):
    with pytest.raises(stator.StatorError) as caught:
        stator.compile(broken_graph, backend=backend, **settings)(torch.zeros(2))
    return caught.value


def test_torchs_classes_catch_stators_errors_once_they_are_loaded(monkeypatch):
    theirs = pytest.importorskip("torch._dynamo.exc")
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch._dynamo.exc")
        before = make_break().as_unsupported()
        assert type(before) is stator.Unsupported and "torch._dynamo.exc" not in sys.modules
    after = make_break().as_unsupported()
    assert isinstance(after, stator.Unsupported) and isinstance(after, theirs.Unsupported) and str(after) == str(before)
    assert (after.code, after.msg, type(after).__qualname__) == (before.code, str(before), "Unsupported")
    assert isinstance(raised(fullgraph=True), theirs.Unsupported)
    for again in (pickle.loads(pickle.dumps(after)), copy.copy(after)):
        assert isinstance(again, theirs.Unsupported) and str(again) == str(after)
    assert isinstance(after, theirs.UserError) and after.code == "SB002"
    with pytest.raises(theirs.Unsupported) as caught:
        stator.compile(lambda x: stator.graph_break(), backend="eager", fullgraph=True)(torch.ones(2))
    assert not isinstance(caught.value, theirs.UserError)
    broken = raised(backend=failing)
    assert isinstance(broken, theirs.BackendCompilerFailed) and isinstance(broken.inner_exception, LookupError)
    assert not isinstance(broken, theirs.Unsupported) and "no such thing" in str(broken)


def test_a_broken_declaration_is_what_torch_raises_for_one():
    x = torch.ones(8, 3)
    stator.mark_dynamic(x, 0, min=2, max=5)
    with pytest.raises(ConstraintViolationError) as caught:
        stator.compile(lambda x: x + 1, backend="eager")(x)
    assert isinstance(caught.value, errors.DeclarationError) and isinstance(caught.value, ValueError)
