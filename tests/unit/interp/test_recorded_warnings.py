"""`catch_warnings(record=True)` inside captured code: the program's own warnings are in its list, as in eager."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events


class Mine(UserWarning):
    pass


class Loud(UserWarning):
    def __init__(self, text: str) -> None:
        super().__init__(text.upper())


def helper(x: Any) -> Any:
    warnings.warn("of a helper", Mine, stacklevel=2)
    return x * 2


def always(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("one", stacklevel=1)
        y = helper(x).sin()
        warnings.warn("one", DeprecationWarning, stacklevel=1)
    return y, seen


def read_inside(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = helper(x)
        if seen:
            y = y + len(seen)
    return y, [(str(each.message), each.category, each.lineno) for each in seen]


def ignored(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("ignore")
        return helper(x), seen


def ignored_in_part(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "of a", Mine)
        warnings.warn("of another", stacklevel=1)
        return helper(x), seen


def once_for_each_line(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for number in range(4):
            if number == 2:
                warnings.simplefilter("default", Mine)
            x = helper(x)
            warnings.warn("text", stacklevel=1)
    return x, seen


def after_a_reset(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        return helper(helper(x)), seen


def nested(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("always")
        warnings.warn("before", stacklevel=1)
        with warnings.catch_warnings(record=True) as inner:
            x = helper(x)
        warnings.warn("after", stacklevel=1)
    return x, outer, inner


def shown_around(x: Any) -> Any:
    warnings.warn("shown first", stacklevel=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        x = helper(x)
    warnings.warn("shown last", stacklevel=1)
    return x, seen


def raised_out_of(x: Any) -> Any:
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = helper(x)
            raise KeyError("k")
    except KeyError:
        return x, seen


def two_in_a_row(x: Any) -> Any:
    logs = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = helper(x)
        logs.append(seen)
    return x, logs


def without_gradients(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.no_grad():
            y = helper(x)
        warnings.warn("behind", stacklevel=1)
    return y, seen


WHOLE = [always, without_gradients, read_inside, ignored, ignored_in_part, once_for_each_line, after_a_reset, nested, shown_around,
         raised_out_of, two_in_a_row]


def by_filters_of_outside(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        return helper(x), seen


def of_an_operation(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x[:1].std()
    return y, [each.category for each in seen]


def of_an_operation_without_gradients(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.no_grad():
            y = x[:1].std()
        warnings.warn("behind", stacklevel=1)
    return y, [each.category for each in seen]


def of_an_operation_after_a_break(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x.sort()[0][:1]
        y = y.std()
    return y, [each.category for each in seen]


def of_a_cast(x: Any) -> Any:
    z = x * 1j
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = z.to(torch.float32) + z.type(torch.float32)
        x[:1] = z[:1]
    return y, [each.category for each in seen]


def of_a_mask(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x[torch.tensor([1] * x.shape[0], dtype=torch.uint8)]
    return y, [each.category for each in seen]


def of_the_caller(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("at the caller", stacklevel=2)
    return x + 1, seen


def of_another_class(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("text", Loud, stacklevel=1)
    return x + 1, seen


def broken_inside(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        x = helper(x)
        stator.graph_break()
        x = helper(x)
    return x, seen


def left_open(x: Any) -> Any:
    manager = warnings.catch_warnings(record=True)
    seen = manager.__enter__()
    warnings.simplefilter("always")
    x = helper(x)
    manager.__exit__(None, None, None)
    manager = warnings.catch_warnings(record=True)
    manager.__enter__()
    return x, seen, manager.__exit__


def once(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("once")
        return helper(helper(x)), seen


def read_beside_an_operation(x: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = len(seen)
        y = x[:1].std()
        after = len(seen)
    return y, before, after, len(seen)


BROKEN = [of_an_operation_without_gradients, of_an_operation_after_a_break, of_a_cast, of_a_mask, read_beside_an_operation, by_filters_of_outside, of_an_operation, of_the_caller, of_another_class, broken_inside, left_open, once]


def described(value: Any, whole: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.tolist())  # nan is nan
    if isinstance(value, warnings.WarningMessage) and not whole:  # the places of functions below a break are not kept
        return type(value.message), value.message.args, value.category
    if isinstance(value, warnings.WarningMessage):
        return (type(value.message), value.message.args, value.category, value.filename, value.lineno, value.file,
                value.line, value.source, sorted(vars(value)))
    if isinstance(value, (list, tuple)):
        return type(value), [described(each, whole) for each in value]
    return value


@pytest.fixture(autouse=True)
def said_every_time() -> Any:
    """Also what torch says once in a process: it is to be said to both."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def outcome(function: Any, x: torch.Tensor, whole: bool) -> Any:
    said = io.StringIO()
    before = list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        inside = list(warnings.filters)
        with contextlib.redirect_stderr(said):
            value = function(x)
        if callable(value[-1]):
            value[-1](None, None, None)
            value = value[:-1]
        assert warnings.filters == inside
    assert warnings.filters == before
    return described(value, whole), re.sub(r"<stator graph>|\d+", "", said.getvalue())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [*WHOLE, *BROKEN], ids=lambda function: function.__name__)
def test_recorded_as_in_eager(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    if function is once and backend != "eager":
        backend = "eager"  # what AOTAutograd does to the filters makes 'once' begin anew
    compiled = stator.compile(function, backend=backend)
    for number in range(3):
        x = torch.full((2 + number,), 0.5 + number)
        with events.record() as log:
            found = outcome(lambda x: compiled(x), x, function in WHOLE)
        assert found == outcome(lambda x: function(x), x, function in WHOLE)
        breaks = [event for event in log if isinstance(event, events.GraphBreak)]
        assert not breaks if function in WHOLE else breaks or number


def test_a_break_names_its_cause() -> None:
    with pytest.raises(stator.Unsupported, match="beside std, which may warn as it runs"):
        stator.compile(of_an_operation, backend="eager", fullgraph=True)(torch.ones(3))


def test_what_torch_says_once_is_not_said_to_the_trace() -> None:
    """A rule for fakes that warns breaks, and the operation says it to the program, also where torch says it once."""
    def turned(x: Any) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = x.T
        return y, len(seen)

    x = torch.ones(2, 3, 4)
    assert stator.compile(turned, backend="eager")(x)[1] == turned(x)[1] == 1
