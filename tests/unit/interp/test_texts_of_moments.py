"""Text of tensors that C code asks for, of containers that change from call to call; the line of a failed assertion."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch

import stator
from stator import events
from tests.comparison import call, same_as_eager

X = torch.arange(3.0)


@pytest.mark.parametrize("fn", [lambda x: "%s" % x, lambda x: "{}|{!r}".format(x, x), lambda x: format(x), lambda x: f"{x}"])  # noqa: UP031, UP032
def test_text_of_a_tensor(fn: Any) -> None:
    same_as_eager(lambda x: (fn(x + 1), x * 2), call(X), call(-X), fullgraph=False)


def test_the_text_of_what_changes_from_call_to_call_is_made_by_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: Any, things: tuple[Any, ...]) -> Any:
        print(things)
        return x + 1

    compiled = stator.compile(fn, backend="eager")
    with events.record() as log, pytest.warns(RuntimeWarning, match="recompile limit"):
        for number in range(14):
            compiled(X, (number, "a" * number))
    assert any("the text of a tuple" in event.cause for event in log if isinstance(event, events.GraphBreak))
    assert capsys.readouterr().out == "".join(f"{(number, 'a' * number)}\n" for number in range(14))


def test_a_failed_assertion_names_its_line() -> None:
    """The graph has written to its input by then, and nothing can be put back: the exception is made for the place."""
    def inner(x: Any) -> None:
        assert x.sum() > 0, "not above 0"

    def program(x: Any) -> Any:
        x.add_(1)
        inner(x)
        return x * 2

    seen = []
    for subject in (program, stator.compile(program, backend="eager")):
        subject(torch.ones(1 << 22))
        with pytest.raises(AssertionError, match="not above 0") as caught:
            subject(torch.full((1 << 22,), -3.0))
        frames = traceback.extract_tb(caught.value.__traceback__)
        seen.append([(frame.name, frame.lineno) for frame in frames if frame.name in ("inner", "program")])
    assert seen[0] == seen[1]
