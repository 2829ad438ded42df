"""print, logging and warnings do not break: they are replayed in order, with the values of that moment."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.breaks.capture import compare

X = torch.tensor([1.0, -2.0, 3.0])
W = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
logger = logging.getLogger("tests.breaks.effects")


def prints_a_tensor(x):
    y = x + 1
    print("y =", y)
    return y * 2


def prints_before_a_change(x):
    y = x * 1.0
    print(y)
    y.add_(1)
    print(y)
    x.mul_(2)
    print(x)
    return y


def prints_containers(x):
    parts = [x, x + 1]
    print(parts, {"a": x, 3: (x,)}, (), [])
    parts.append(x + 2)
    print(len(parts), parts, sep="|", end="!\n", flush=True)
    return parts


def prints_formatted(x):
    n = x.sum().item()
    print(f"sum {n:.2f} of {x} and {x.max()} ({x!r:>60})")
    print(n, x.argmax().item(), x.sum())
    return x + 1


def prints_in_a_loop(x):
    for i in range(4):
        x = helper(x, i)
    return x


def helper(x, i):
    x = x + i
    print("step", i, x.mean())
    return x


def text_that_leaves(x):
    return f"{x}", str(x + 1), x * 2


def a_number_in_text(x):
    name = f"sum={x.sum().item():.1f}"
    return {"name": name}, x + 1


def long_lines(x):
    y = x.repeat(30) + 0.123456
    print(y)
    return y


def bad_format(x):
    y = x + 1
    try:
        return f"{y:.2f}", y
    except TypeError as error:
        return str(error), y


PROGRAMS = [prints_a_tensor, prints_before_a_change, prints_containers, prints_formatted, prints_in_a_loop,
            text_that_leaves, a_number_in_text, long_lines, bad_format]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_captured_whole_and_printed_alike(program: Any, backend: str) -> None:
    seen = compare(program, [(X,), (X + 1,)], fullgraph=True, backend=backend)
    assert len(seen.graph_modules) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [prints_a_tensor, prints_containers, prints_in_a_loop, long_lines],
                         ids=lambda program: program.__name__)
def test_text_of_tensors_with_grad(program: Any, backend: str) -> None:
    seen = compare(program, [(W,)], fullgraph=True, backend=backend)
    assert len(seen.graph_modules) == 1


def test_a_later_change_of_a_tensor_with_grad_is_not_shown() -> None:
    def program(x):
        y = x * 2
        print(y)
        y.add_(1)
        return y

    assert len(compare(program, [(W,)], fullgraph=True).graph_modules) == 1


def logs(x):
    y = x + 1
    logger.warning("y is %s of %d in %s", y, 3, [y, {"k": y}])
    y.mul_(2)
    logger.info("not shown %s", y)
    return y


class Formatting(logging.Handler):
    """Formats at once, as handlers that write do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.getMessage(), record.levelno, record.lineno, record.filename, record.funcName))


def test_logging_has_the_values_and_the_place_of_that_moment() -> None:
    compiled = stator.compile(logs, backend="eager", fullgraph=True)
    handler = Formatting()
    logger.addHandler(handler)
    found = []
    try:
        for call in (logs, compiled, compiled):
            handler.seen = []
            call(X)
            found.append(handler.seen)
    finally:
        logger.removeHandler(handler)
    assert found[0] and found[0] == found[1] == found[2]


def test_warnings_name_the_users_line() -> None:
    def program(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    found = []
    for call in (program, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(X)
        found.append([(str(w.message), w.category, w.lineno, w.filename) for w in caught])
    assert found[0] and found[0] == found[1]


@pytest.mark.parametrize("program", [prints_a_tensor, logs], ids=lambda program: program.__name__)
def test_the_option_print_breaks_instead(program: Any) -> None:
    seen = compare(program, [(X,), (X,)], options={"print": "break"})
    assert set(seen.breaks) == {"SB015"}
    assert len(seen.graph_modules) >= 2
    with pytest.raises(stator.Unsupported, match="SB015"):
        stator.compile(program, backend="eager", fullgraph=True, options={"print": "break"})(X)
    with pytest.raises(stator.OptionError, match="print"):
        stator.compile(program, options={"print": "never"})


def test_prints_and_breaks_stay_in_order() -> None:
    def program(x):
        print("before", x)
        stator.graph_break()
        print("after", x + 1)
        return x

    seen = compare(program, [(X,), (X,)])
    assert seen.breaks == ["SB009"] and not seen.of(events.EagerFallback)


@pytest.mark.parametrize("streams", [(False, True), (True, False, True)])
def test_a_process_without_an_output_stream(streams: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """print() writes nothing where sys.stdout is None; the next call may have a stream again."""
    compiled = stator.compile(prints_a_tensor, backend="eager")
    for present in streams:
        stream = io.StringIO() if present else None
        monkeypatch.setattr(sys, "stdout", stream)
        result = compiled(X)
        monkeypatch.undo()
        assert torch.equal(result, (X + 1) * 2)
        assert stream is None or stream.getvalue() == f"y = {X + 1}\n"
