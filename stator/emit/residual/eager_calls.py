"""Calls that a compiled segment hands back to the original function.   its graph raised, a lock was taken  ->  EAGER

The entry runs the function and passes the ending on to `check_ending`: where the function succeeds though the graph or
the trace has failed, the capture was wrong. That is an error under fullgraph, else one warning.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import Any

import torch

from stator import _core, errors, events
from stator.errors import InternalError
from stator.graph.analysis.may_fail import lines_that_may_fail
from stator.host.held_signals import raised_by_a_handler
from stator.host.own_code import OWN_FOLDER
from stator.interp.vm import VM

_being_redone = threading.local()  # causes: of the calls that this thread is making again, outermost first
_told: set[str] = set()


@dataclass(frozen=True)
class ExpectedError:
    """The exception in which a trace ended, as data: the exception itself would keep frames alive."""

    module: str
    qualname: str
    filename: str | None
    line: int | None
    lines_before: frozenset[tuple[str, int]] = frozenset()  # of operations and output that may fail for real
    anything_before: bool = False  # the truth of a tensor decides whether to raise an exception not made yet

    @classmethod
    def of(cls, error: BaseException, traceback: types.TracebackType | None) -> ExpectedError:
        kind = type(error)
        return cls(kind.__module__, kind.__qualname__, *innermost_line(traceback))

    def after(self, vm: VM) -> ExpectedError:
        """Add what a trace has recorded and not run."""
        asserted = {(place.code.co_filename, place.line)
                    for each in vm.residual.assertions for place in each.places[:1]}
        return replace(self, lines_before=lines_that_may_fail(vm.recorder.graph) | asserted | vm.effects.lines,
                       anything_before=any(each.cls is None for each in vm.residual.assertions))

    def __str__(self) -> str:
        return self.qualname if self.line is None else f"{self.qualname} at {self.filename}:{self.line}"

    def is_raised_by(self, error: BaseException) -> bool:
        """Compare names of classes: a class made by the call itself is another one each time."""
        return (type(error).__module__, type(error).__qualname__) == (self.module, self.qualname)

    def is_preceded_by(self, error: BaseException, traceback: types.TracebackType | None) -> bool:
        """Whether the program may raise `error` before it comes to this one, and the trace could not know."""
        out_of_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) \
            or type(error) is RuntimeError and "allocate memory" in str(error)
        return self.anything_before or out_of_memory or not self.lines_before.isdisjoint(lines_behind(error, traceback))


def lines_behind(error: BaseException, traceback: types.TracebackType | None) -> Iterator[tuple[str, int]]:
    """File and line of each frame that an exception, or one that was being handled when it was raised, has left."""
    todo, seen = [(error, traceback)], {id(error)}
    while todo:
        each, traceback = todo.pop()
        yield from ((frame.f_code.co_filename, line) for frame, line in walk_tb(traceback))
        for other in (each.__context__, each.__cause__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                todo.append((other, other.__traceback__))


def innermost_line(traceback: types.TracebackType | None) -> tuple[str | None, int | None]:
    """File and line of the innermost frame outside Stator."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(traceback)]
    return next((place for place in reversed(places) if not place[0].startswith((OWN_FOLDER, "<stator"))), (None, None))


class EagerEntry:
    """Residual of an entry that runs the original function: the capture stopped, or ended in `expected`."""

    __slots__ = ("event", "expected", "__weakref__")

    def __init__(self, name: str, why: str, filename: str | None, line: int | None,
                 expected: ExpectedError | None = None) -> None:
        self.expected = expected
        self.event: events.Event = events.EagerFallback(name, why, filename, line)
        if expected is not None:
            self.event = events.ProgramRaised(name, expected.qualname, expected.filename, expected.line)

    def __call__(self) -> Any:
        events.emit(self.event)
        return run_as_it_is(self.expected)


def run_as_it_is(failure: str | ExpectedError | None = None) -> Any:
    """Result of a segment that has done nothing; `failure`: reported unless the function itself fails."""
    _being_redone.__dict__.setdefault("causes", []).append(failure)
    return _core.EAGER


def forgive() -> Any:
    """Expect nothing of the last run_as_it_is: the program may handle the failure of its graph."""
    _being_redone.causes[-1] = None
    return _core.EAGER


def check_ending(compiled: Any, error: BaseException | None, traceback: Any) -> None:
    """Compare the ending of the function with the cause of its run_as_it_is."""
    cause = _being_redone.causes.pop()
    if cause is None:
        return
    site = compiled._stator_site
    must_capture = site.settings.fullgraph or site.settings.strict
    if type(cause) is ExpectedError:
        if error is not None and (cause.is_raised_by(error) or raised_by_a_handler(error)
                                  or cause.is_preceded_by(error, traceback)):
            return
        found = "does not raise" if error is None else f"raises {ExpectedError.of(error, traceback)} instead"
        text = f"stator: the capture of {site.name} ended in {cause}, and the program {found}: a bug in Stator's " \
               "capture. The call was made eagerly, as every such call will be."
        wrong = InternalError(text)
        events.emit(events.InternalFailure(site.name, wrong))
        if site.settings.strict or must_capture and error is None:
            raise wrong from error
    else:
        text = cause
        if error is None and site.settings.fullgraph:
            raise InternalError(text)
    if error is None and text not in _told:
        _told.add(text)
        errors.warn(text)


_core.listen_to_redone(check_ending)
