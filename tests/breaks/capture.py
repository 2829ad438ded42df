"""Run a program compiled and eagerly, and compare all that can be seen of it.

    seen = compare(program, args_of_each_call)   ->   Seen(graphs, breaks, recompiles, fallbacks), after asserting equality
"""

from __future__ import annotations

import contextlib
import copy
import io
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import stator
from stator import events


@dataclass
class Seen:
    """What compiling did, from its events."""

    log: list[events.Event]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]

    @property
    def graphs(self) -> list[Any]:
        return [event.graph for event in self.of(events.CaptureFinished) if event.graph is not None]

    @property
    def breaks(self) -> list[str]:
        return [event.code for event in self.of(events.GraphBreak)]


def portrait(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist(), value.dtype, value.requires_grad)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [portrait(item) for item in value])
    if isinstance(value, dict):
        return {key: portrait(item) for key, item in value.items()}
    return value


def outcome(program: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Value or exception with the user's lines, printed text, and the arguments afterwards."""
    out, err = io.StringIO(), io.StringIO()
    args = copy.deepcopy(list(args))
    lines = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            result = portrait(program(*args))
        except Exception as error:
            result = (type(error), str(error))
            lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)][1:]
    return result, lines, out.getvalue(), err.getvalue(), portrait(args), torch.is_grad_enabled()


def compare(program: Callable[..., Any], calls: Sequence[Sequence[Any]], **settings: Any) -> Seen:
    """Every call compiled equals the same call eager."""
    options = {"strict": True, **settings.pop("options", {})}
    compiled = stator.compile(program, **{"backend": "eager", "options": options, **settings})
    with events.record() as log:
        for args in calls:
            found, expected = outcome(compiled, args), outcome(program, args)
            assert found == expected, f"\ncompiled: {found}\neager:    {expected}"
    seen = Seen(log)
    assert not seen.of(events.InternalFailure)
    return seen
